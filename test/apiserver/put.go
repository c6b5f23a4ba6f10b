package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
)

// Stored is an object in the form in which etcd has it. Its key is a path, such as "services/specs/default/web".
type Stored struct {
	Key    string
	Object any // with apiVersion and kind
}

// putAtOnce is how many objects one transaction writes. etcd allows 128, and 1.5 MB.
const putAtOnce = 100

// Put writes objects directly to etcd. The API server does not check them, and allocates no ClusterIPs. For each
// Service that the API server creates itself, it lists all existing ClusterIPs, so 10,000 Services take a quarter of an
// hour.
func (s *Server) Put(ctx context.Context, objects []Stored) error {
	type put struct {
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}
	type request struct {
		Put put `json:"requestPut"`
	}
	for some := range slices.Chunk(objects, putAtOnce) {
		var transaction struct {
			Success []request `json:"success"`
		}
		for _, o := range some {
			value, err := json.Marshal(o.Object)
			if err != nil {
				return fmt.Errorf("encode %s: %w", o.Key, err)
			}
			transaction.Success = append(transaction.Success, request{put{[]byte("/registry/" + o.Key), value}})
		}
		if _, err := s.askEtcd(ctx, "/v3/kv/txn", transaction); err != nil {
			return fmt.Errorf("write objects from %s on to etcd: %w", some[0].Key, err)
		}
	}
	return nil
}

// askEtcd sends a request to the JSON gateway of etcd, and returns the answer.
func (s *Server) askEtcd(ctx context.Context, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.etcdURL+path, bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err = io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return text, err
}
