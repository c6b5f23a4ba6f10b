package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tombolo-net/tombolo/pkg/apis/multicluster"
	mcv1alpha1 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha1"
	mcv1alpha2 "github.com/tombolo-net/tombolo/pkg/apis/multicluster/v1alpha2"
	"github.com/tombolo-net/tombolo/pkg/multicluster/leader"
)

const (
	leaderMembers  = 1000
	leaderExports  = 100_000 // half of them Services, half their Endpoints
	leaderServices = 500     // different ones, each exported by a tenth of the members
	leaderQuiet    = time.Minute
	leaderBeat     = 10 * time.Second
	leaderChanges  = 200
)

// echo is a Common Area that stores the leader's writes at once, and sends their events.
type echo struct {
	client.Client // nil: no other call is made
	area          *leader.Area
	version       atomic.Int64
	mu            sync.Mutex
	exports       map[string]*mcv1alpha1.ResourceExport
	waiting       map[string]chan time.Time // for the write of an import, by name
}

func (e *echo) next(o client.Object) { o.SetResourceVersion(fmt.Sprint(e.version.Add(1))) }

func (e *echo) wrote(o client.Object) error {
	now := time.Now()
	e.mu.Lock()
	if c := e.waiting[o.GetName()]; c != nil {
		c <- now
		delete(e.waiting, o.GetName())
	}
	e.mu.Unlock()
	return e.status(o)
}

func (e *echo) status(o client.Object) error {
	e.next(o)
	switch o := o.(type) {
	case *mcv1alpha1.ResourceImport:
		e.area.Set(o)
	case *mcv1alpha1.ResourceExport:
		e.mu.Lock()
		have := e.exports[o.Name]
		e.mu.Unlock()
		re := have.DeepCopy()
		re.ResourceVersion, re.Status = o.ResourceVersion, o.Status
		e.area.Set(re)
	case *mcv1alpha2.ClusterSet:
		e.area.Set(o)
	}
	return nil
}

func (e *echo) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return e.wrote(o)
}

func (e *echo) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return e.wrote(o)
}

func (e *echo) Status() client.SubResourceWriter { return echoStatus{e: e} }

type echoStatus struct {
	client.SubResourceWriter
	e *echo
}

func (s echoStatus) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return s.e.status(o)
}

func leaderMember(i int) string { return fmt.Sprintf("c%04d", i) }

// leaderService returns the n-th export of a Service, and the export of its Endpoints.
func leaderService(n int) (service, endpoints *mcv1alpha1.ResourceExport) {
	s, m := n%leaderServices,
		n/leaderServices*(leaderMembers/(leaderExports/2/leaderServices))+
			n%leaderServices%(leaderMembers/(leaderExports/2/leaderServices))
	id, name := leaderMember(m), fmt.Sprintf("web-%d", s)
	export := func(kind, suffix string) *mcv1alpha1.ResourceExport {
		re := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: id, Namespace: "default", Name: name,
			Kind: kind}}
		re.Namespace, re.Name = "area", multicluster.ResourceExportName(id, "default", name, suffix)
		re.Finalizers = []string{multicluster.ResourceExportFinalizer}
		re.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000+int64(n), 0))
		return re
	}
	service = export(multicluster.ServiceKind, multicluster.ServiceSuffix)
	service.Spec.Service = &mcv1alpha1.ServiceExport{
		ServiceSpec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}}}}
	endpoints = export(multicluster.EndpointsKind, multicluster.EndpointsSuffix)
	endpoints.Spec.Endpoints = &mcv1alpha1.EndpointsExport{Subsets: []corev1.EndpointSubset{leaderSubset(m, s, 0)}}
	return service, endpoints
}

func leaderSubset(m, s, change int) corev1.EndpointSubset {
	return corev1.EndpointSubset{
		Addresses: []corev1.EndpointAddress{{IP: fmt.Sprintf("10.%d.%d.%d", m/4, m%4*64+s/8%64, 1+s%8+8*(change%16))}},
		Ports:     []corev1.EndpointPort{{Name: "http", Port: 80, Protocol: corev1.ProtocolTCP}},
	}
}

// leaderRow is a leader with a large ClusterSet, whose Common Area this process plays.
func leaderRow(ctx context.Context) error {
	e := &echo{exports: map[string]*mcv1alpha1.ResourceExport{}, waiting: map[string]chan time.Time{}}
	e.area = leader.NewArea(e)
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { _ = e.area.Run(ctx) })

	began := time.Now()
	set := &mcv1alpha2.ClusterSet{ObjectMeta: metav1.ObjectMeta{Namespace: "area", Name: "set"},
		Spec: mcv1alpha2.ClusterSetSpec{ClusterID: "north", Leaders: []mcv1alpha2.LeaderClusterInfo{{ClusterID: "north"}}}}
	e.next(set)
	e.area.Set(set)
	beat := func(i int) {
		a := &mcv1alpha1.MemberClusterAnnounce{ClusterID: leaderMember(i)}
		a.Namespace, a.Name = "area", multicluster.AnnounceName(a.ClusterID)
		a.Finalizers = []string{multicluster.MemberClusterAnnounceFinalizerPrefix + a.ClusterID}
		a.CreationTimestamp = metav1.NewTime(time.Unix(1_700_000_000, 0))
		a.Annotations = map[string]string{multicluster.AnnotationTouchTimestamp: time.Now().Format(time.RFC3339Nano)}
		e.next(a)
		e.area.Set(a)
	}
	for i := range leaderMembers {
		beat(i)
		id := leaderMember(i)
		info := &mcv1alpha1.ResourceExport{Spec: mcv1alpha1.ResourceExportSpec{ClusterID: id,
			Kind:        multicluster.ClusterInfoKind,
			ClusterInfo: &mcv1alpha1.ClusterInfo{ClusterID: id, ServiceCIDR: fmt.Sprintf("10.%d.%d.0/18", i/4, i%4*64)}}}
		info.Namespace, info.Name = "area", id+multicluster.ClusterInfoSuffix
		e.add(info)
	}
	for n := range leaderExports / 2 {
		service, endpoints := leaderService(n)
		e.add(service)
		e.add(endpoints)
	}
	e.area.Loaded()
	if err := settled(ctx, e.area, 5*time.Second); err != nil {
		return err
	}
	fmt.Println("load", time.Since(began).Seconds())
	for i := range leaderMembers { // the first heartbeat is a fact
		beat(i)
	}
	if err := settled(ctx, e.area, 5*time.Second); err != nil {
		return err
	}

	before, spent, quiet := evaluated(e.area), processorTime(), time.Now()
	beats := 0
	for time.Since(quiet) < leaderQuiet {
		due := int(time.Since(quiet) * leaderMembers / leaderBeat)
		for ; beats < due; beats++ {
			beat(beats % leaderMembers)
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("quiet", (processorTime()-spent).Seconds()/time.Since(quiet).Seconds()*100)
	fmt.Println("beats", beats)
	fmt.Println("quietkeys", float64(evaluated(e.area)-before)/float64(beats))
	fmt.Println("written", e.area.Pending())

	var took []time.Duration
	keys := uint64(0)
	for i := range leaderChanges {
		_, endpoints := leaderService(i * 7 % (leaderExports / 2))
		var m, s int
		_, _ = fmt.Sscanf(endpoints.Spec.ClusterID, "c%d", &m)
		_, _ = fmt.Sscanf(endpoints.Spec.Name, "web-%d", &s)
		endpoints.Spec.Endpoints.Subsets[0] = leaderSubset(m, s, 1+i/16)
		done := make(chan time.Time, 1)
		e.mu.Lock()
		e.waiting[multicluster.ResourceImportName("default", endpoints.Spec.Name, multicluster.EndpointsSuffix)] = done
		endpoints.Status = e.exports[endpoints.Name].Status
		e.mu.Unlock()
		before, start := evaluated(e.area), time.Now()
		e.add(endpoints)
		select {
		case at := <-done:
			took = append(took, at.Sub(start))
		case <-time.After(10 * time.Second):
			return fmt.Errorf("%s has changed, and its import was not written", endpoints.Name)
		}
		if err := settled(ctx, e.area, 50*time.Millisecond); err != nil {
			return err
		}
		keys = max(keys, evaluated(e.area)-before)
	}
	slices.Sort(took)
	fmt.Println("p50", took[len(took)/2].Seconds()*1000)
	fmt.Println("p99", took[len(took)*99/100].Seconds()*1000)
	fmt.Println("keys", keys)
	fmt.Println("peak", peak())
	return nil
}

func (e *echo) add(re *mcv1alpha1.ResourceExport) {
	e.next(re)
	e.mu.Lock()
	e.exports[re.Name] = re
	e.mu.Unlock()
	e.area.Set(re)
}

// settled waits until there was nothing left to write, and no pass was made, for longer than a pass takes.
func settled(ctx context.Context, area *leader.Area, quiet time.Duration) error {
	last, since := uint64(0), time.Now()
	for time.Since(since) < quiet {
		_, passes, _ := area.Stats()
		if passes != last || passes == 0 || area.Pending() > 0 {
			last, since = passes, time.Now()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d objects are still to be written: %w", area.Pending(), ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}

// evaluated is how many keys were evaluated so far.
func evaluated(area *leader.Area) uint64 {
	var n uint64
	_, _, tables := area.Stats()
	for _, t := range tables {
		n += t.Evaluated
	}
	return n
}

func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTableLeader prints what a leader with many members costs.
func BenchmarkTableLeader(b *testing.B) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), rowVariable+"=leader")
	s, t := run(b, c), table{b}
	fmt.Printf("\nA leader with %d members announcing every %s, and %d exports; its tables are filled directly, without "+
		"an API server\n\n", leaderMembers, leaderBeat, leaderExports)
	t.row("quiet, but for heartbeats: of a core", fmt.Sprintf("%.1f %%", s.of("quiet")), "<= 5 %", s.of("quiet") <= 5,
		fmt.Sprintf("%.0f heartbeats in %s, the Common Area's play included", s.of("beats"), leaderQuiet))
	t.row("the same: keys evaluated for a heartbeat", fmt.Sprintf("%.2f", s.of("quietkeys")), "<= 1",
		s.of("quietkeys") <= 1, "its own")
	t.row("memory at most", fmt.Sprintf("%.0f MB", s.of("peak")/1e6), "<= 1500 MB", s.of("peak") <= 1.5e9,
		fmt.Sprintf("loaded and written in %.0f s", s.of("load")))
	t.row("one export changes, until its import is written, p99", fmt.Sprintf("%.2f ms", s.of("p99")), "<= 10 ms",
		s.of("p99") <= 10,
		fmt.Sprintf("p50 %.2f ms, without the write's own time", s.of("p50")))
	t.row("the same: keys evaluated until all is written", fmt.Sprintf("%.0f", s.of("keys")), "<= 500",
		s.of("keys") <= 500, "100 members export that Service")
}
