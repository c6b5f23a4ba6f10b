package diagnosis

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/ui"
	"github.com/tombolo-net/tombolo/test/lab"
	"github.com/tombolo-net/tombolo/test/scenario"
)

// shownMap is the map as a page has it.
type shownMap struct {
	mu       sync.Mutex
	sections map[string]json.RawMessage
}

// openMap runs `tombolo ui`, opens its URL as a browser does, and follows the events of its page until the test ends.
func openMap(t *testing.T) *shownMap {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(world.Lab.Repo(), "bin", "tombolo"), "ui", "--context",
		world.Kubeconfigs())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the end of the test's context kills it
	line, err := bufio.NewReader(out).ReadString('\n')
	url := regexp.MustCompile(`(http://\S+)/#token=(\S+)`).FindStringSubmatch(line)
	if err != nil || url == nil {
		t.Fatalf("tombolo ui printed %q: %v", line, err)
	}
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	ask := func(method, path, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url[1]+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", url[1])
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode >= http.StatusMultipleChoices {
			t.Fatalf("%s %s: %s", method, path, answer.Status)
		}
		return answer
	}
	_ = ask(http.MethodPost, "/session", url[2]).Body.Close()
	events := ask(http.MethodGet, "/api/events", "")
	m := &shownMap{sections: map[string]json.RawMessage{}}
	go func() {
		defer events.Body.Close()
		for lines := bufio.NewReader(events.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			var u ui.Update
			data, ok := strings.CutPrefix(line, "data: ")
			if ok && json.Unmarshal([]byte(data), &u) == nil {
				m.update(u)
			}
		}
	}()
	return m
}

func (m *shownMap) update(u ui.Update) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if u.Full {
		clear(m.sections)
	}
	for name, text := range u.Set {
		m.sections[name] = text
	}
	for _, name := range u.Gone {
		delete(m.sections, name)
	}
}

// section decodes one section.
func (m *shownMap) section(name string, into any) error {
	m.mu.Lock()
	text, ok := m.sections[name]
	m.mu.Unlock()
	if !ok {
		return fmt.Errorf("there is no section %s", name)
	}
	return json.Unmarshal(text, into)
}

// names returns the names of sections that begin with a prefix.
func (m *shownMap) names(prefix string) (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.sections {
		if strings.HasPrefix(name, prefix) {
			out = append(out, name)
		}
	}
	return out
}

// cluster returns a cluster of the lab.
func (m *shownMap) cluster(c *lab.Cluster) (ui.Cluster, error) {
	for _, name := range m.names("cluster:") {
		var have ui.Cluster
		if err := m.section(name, &have); err == nil && have.ID == scenario.ClusterID(c.Name()) {
			return have, nil
		}
	}
	return ui.Cluster{}, fmt.Errorf("there is no cluster %s", c.Name())
}

// node returns a Node.
func (m *shownMap) node(c *lab.Cluster, n *lab.Node) (ui.Node, error) {
	cluster, err := m.cluster(c)
	if err != nil {
		return ui.Node{}, err
	}
	var nodes []ui.Node
	if err := m.section("nodes:"+cluster.Key, &nodes); err != nil {
		return ui.Node{}, err
	}
	for _, have := range nodes {
		if have.Name == n.Name() {
			return have, nil
		}
	}
	return ui.Node{}, fmt.Errorf("there is no Node %s", n)
}

// link wants a state of the ways between two clusters other than good.
func link(a, b *lab.Cluster) func(*shownMap) error {
	return func(m *shownMap) error {
		one, err := m.cluster(a)
		two, err2 := m.cluster(b)
		if err := errors.Join(err, err2); err != nil {
			return err
		}
		for _, name := range m.names("link:") {
			var l ui.Link
			if m.section(name, &l) != nil || !(l.A == one.Key && l.B == two.Key || l.A == two.Key && l.B == one.Key) {
				continue
			}
			if l.State == ui.OK || l.State == ui.Unknown {
				return fmt.Errorf("the ways of %s and %s are %s (%s)", a.Name(), b.Name(), l.State, l.Word)
			}
			return nil
		}
		return fmt.Errorf("there are no ways between %s and %s", a.Name(), b.Name())
	}
}

// cluster wants a state of a cluster other than good.
func cluster(c *lab.Cluster) func(*shownMap) error {
	return func(m *shownMap) error {
		have, err := m.cluster(c)
		if err == nil && have.State == ui.OK {
			err = fmt.Errorf("cluster %s is %s (%s)", c.Name(), have.State, have.Word)
		}
		return err
	}
}

// node wants a state of a Node other than good.
func node(c *lab.Cluster, n *lab.Node) func(*shownMap) error {
	return func(m *shownMap) error {
		have, err := m.node(c, n)
		if err == nil && have.State == ui.OK {
			err = fmt.Errorf("Node %s is %s (%s)", n, have.State, have.Word)
		}
		return err
	}
}

// service wants a state of a Service in the Namespace default other than good.
func service(name string) func(*shownMap) error {
	return func(m *shownMap) error {
		var all []ui.Service
		if err := m.section("services", &all); err != nil {
			return err
		}
		for _, s := range all {
			if s.Namespace == "default" && s.Name == name {
				if s.State == ui.OK {
					return fmt.Errorf("Service %s is %s", name, s.State)
				}
				return nil
			}
		}
		return fmt.Errorf("there is no Service %s", name)
	}
}

// problem wants a cluster with the problem of a failed check.
func problem(code string) func(*shownMap) error {
	return func(m *shownMap) error {
		for _, name := range m.names("cluster:") {
			var c ui.Cluster
			if m.section(name, &c) == nil &&
				slices.ContainsFunc(c.Problems, func(p ui.Problem) bool { return p.Reason == code }) {
				return nil
			}
		}
		return fmt.Errorf("no cluster has a problem %s", code)
	}
}
