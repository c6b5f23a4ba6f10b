package relay

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"slices"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
)

const (
	// answerLimit is how long a Node may take until its answer begins.
	answerLimit = 20 * time.Second
	// readerLimit is how long a reader may take no byte.
	readerLimit = 30 * time.Second
)

// RoundTrip asks the Node. It implements http.RoundTripper.
func (c *node) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(request.Context())
	late := time.AfterFunc(answerLimit, cancel)
	answer, err := c.Conn.RoundTrip(request.WithContext(ctx))
	if !late.Stop() && request.Context().Err() == nil {
		if err == nil {
			_ = answer.Body.Close()
		}
		err = fmt.Errorf("there was no answer within %s", answerLimit)
	}
	if err != nil {
		cancel()
		return nil, failed(http.StatusBadGateway, "Node %s does not answer: %s", c.name, err)
	}
	answer.Body = &cancelling{answer.Body, cancel}
	return answer, nil
}

// cancelling ends a question with the body of its answer.
type cancelling struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c *cancelling) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// askNode asks a Node for what its agent answers on the Node.
func (r *Relay) askNode(w http.ResponseWriter, q *http.Request) error {
	if err := r.allow(q, proxyAccess); err != nil {
		return err
	}
	path := "/" + q.PathValue("path")
	if path == api.PathMetrics || !slices.Contains(api.Reading, path) {
		return failed(http.StatusNotFound, "agents have no path %s", path)
	}
	return r.forward(w, q, path)
}

// nodeMetrics has the metrics of a Node's agent.
func (r *Relay) nodeMetrics(w http.ResponseWriter, q *http.Request) error {
	if err := r.allow(q, metricsAccess); err != nil {
		return err
	}
	return r.forward(w, q, api.PathMetrics)
}

// forward passes a request on to the Node that it names. It removes all headers of the reader, which contain a token.
func (r *Relay) forward(w http.ResponseWriter, q *http.Request, path string) error {
	c, err := r.nodes.of(q.PathValue("node"))
	if err != nil {
		return err
	}
	(&httputil.ReverseProxy{
		Rewrite: func(p *httputil.ProxyRequest) {
			p.Out.Header, p.Out.Host = http.Header{}, api.RelayHost
			p.Out.URL.Scheme, p.Out.URL.Host, p.Out.URL.Path, p.Out.URL.RawPath = "https", api.RelayHost, path, ""
		},
		ModifyResponse: func(answer *http.Response) error {
			answer.Header = http.Header{"Content-Type": answer.Header.Values("Content-Type"),
				"X-Content-Type-Options": {"nosniff"}}
			return nil
		},
		Transport: c, FlushInterval: -1, ErrorLog: slog.NewLogLogger(r.log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) { refuse(w, err) },
	}).ServeHTTP(&impatient{w}, q)
	return nil
}

// impatient ends the connection of a reader that takes nothing.
type impatient struct{ http.ResponseWriter }

func (w *impatient) Write(p []byte) (int, error) {
	_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Now().Add(readerLimit))
	return w.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (w *impatient) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// targets lists the Nodes as targets of a Prometheus server. Each is asked through the relay's Service.
func (r *Relay) targets(w http.ResponseWriter, q *http.Request) error {
	if err := r.allow(q, metricsAccess); err != nil {
		return err
	}
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	list := []group{}
	_, all, _ := r.nodes.now()
	for _, name := range all {
		list = append(list, group{[]string{fmt.Sprintf("%s:%d", api.RelayHost, api.RelayPort)}, map[string]string{
			"__metrics_path__": api.PathMetrics + "/nodes/" + name, "instance": name, "node": name,
		}})
	}
	writeJSON(w, http.StatusOK, list)
	return nil
}
