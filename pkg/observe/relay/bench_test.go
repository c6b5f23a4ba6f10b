package relay_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/record"
)

// pace answers with records at a rate until the reader leaves. The filter is applied as agents do.
func pace(name string, rate int, on *atomic.Bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+api.PathObserve, func(w http.ResponseWriter, q *http.Request) {
		question, err := record.ParseQuestion(q.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lines, flusher := json.NewEncoder(w), http.NewResponseController(w)
		_ = lines.Encode(record.Event{Begin: &record.Begin{Node: name}})
		_ = flusher.Flush()
		const step = 100 * time.Millisecond
		tick := time.NewTicker(step)
		defer tick.Stop()
		for i := 0; ; {
			select {
			case <-q.Context().Done():
				return
			case <-tick.C:
			}
			if !on.Load() {
				continue
			}
			for range rate * int(step) / int(time.Second) {
				i++
				e := dropOf(name, fmt.Sprintf("namespace-%d", i%100), fmt.Sprintf("web-%d", i), "data")
				e.Drop.From.Port = uint16(i)
				if question.Takes(e) && lines.Encode(e) != nil {
					return
				}
			}
			if flusher.Flush() != nil {
				return
			}
		}
	})
	return mux
}

// cpu is the time of processors that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRelay has 1,000 agents make 100 records a second each, and one reader ask for one of 100 Namespaces, and for
// everything. The agents and the reader are in the same process, so that its CPU is an upper bound of the relay's.
func BenchmarkRelay(b *testing.B) {
	const agents, rate, lasts = 1000, 100, 5 * time.Second
	c := newCluster(b)
	r := c.start()
	var on atomic.Bool
	var all sync.WaitGroup
	for i := range agents {
		all.Go(func() {
			name := fmt.Sprintf("node-%d", i)
			r.agent(c.Token("kube-system", "antrea-agent", api.RelayAudience, name), pace(name, rate, &on))
		})
		if i%32 == 31 {
			all.Wait()
		}
	}
	all.Wait()
	token := c.Observer()
	for _, row := range []struct {
		name  string
		query url.Values
	}{{"one Namespace", url.Values{"namespace": {"namespace-7"}}}, {"everything", url.Values{}}} {
		b.Run(row.name, func(b *testing.B) {
			for range b.N {
				row.query.Set("follow", "true")
				row.query.Set("last", "0")
				answer := r.Ask(b.Context(), token, api.PathObserve, row.query)
				lines := bufio.NewScanner(answer.Body)
				lines.Buffer(nil, 1<<20)
				for begun := 0; begun < agents && lines.Scan(); {
					var e record.Event
					if json.Unmarshal(lines.Bytes(), &e) == nil && e.Begin != nil {
						begun++
					}
				}
				on.Store(true)
				start, used, end := time.Now(), cpu(), time.After(lasts)
				var late []time.Duration
				go func() {
					<-end
					on.Store(false)
					time.Sleep(2 * record.MergeWait) // the last records are on their way
					_ = answer.Body.Close()
				}()
				for lines.Scan() {
					var e record.Event
					if json.Unmarshal(lines.Bytes(), &e) == nil && e.Drop != nil {
						late = append(late, time.Since(e.Drop.Time))
					}
				}
				took := time.Since(start)
				slices.Sort(late)
				var memory runtime.MemStats
				runtime.ReadMemStats(&memory)
				b.ReportMetric(float64(len(late))/took.Seconds(), "records/s")
				b.ReportMetric((cpu()-used).Seconds()/took.Seconds(), "cores")
				b.ReportMetric(float64(late[len(late)*99/100].Milliseconds()), "p99-ms")
				b.ReportMetric(float64(memory.HeapInuse>>20), "heap-MiB")
			}
		})
	}
}
