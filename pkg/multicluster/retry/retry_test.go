package retry

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tombolo-net/tombolo/pkg/problem"
)

var (
	things   = schema.GroupResource{Resource: "things"}
	conflict = apierrors.NewConflict(things, "x", errors.New("changed"))
	refusal  = apierrors.NewForbidden(things, "x", errors.New("no"))
	// denial is a webhook's that gives no reason.
	denial  = &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest, Message: "denied"}}
	errAway = errors.New("connection refused")
)

// server answers writes by name, and notes which were tried.
type server struct {
	*Writer
	answers map[string]error
	after   map[string]string
	tried   []string
}

func newServer() *server {
	return &server{Writer: New(200*time.Millisecond, time.Second, slog.New(slog.DiscardHandler)), answers: map[string]error{}, after: map[string]string{}}
}

// round wants some writes, and says what was tried, how long until again, who is blamed.
func (s *server) round(t *testing.T, names ...string) (tried []string, again time.Duration, blamed []string, lost error) {
	t.Helper()
	var writes []Write
	for _, name := range names {
		writes = append(writes, Write{What: name, After: s.after[name], Blame: problem.Problem{Object: problem.Object{Kind: "Thing", Name: name}, Message: "ask"}, Do: func(context.Context) error {
			s.tried = append(s.tried, name)
			return s.answers[name]
		}})
	}
	s.tried = nil
	at, problems, lost := s.Round(t.Context(), writes)
	for _, p := range problems {
		blamed = append(blamed, p.String())
	}
	if !at.IsZero() {
		again = time.Until(at)
	}
	return s.tried, again, blamed, lost
}

func TestOneFailureHoldsUpNoOther(t *testing.T) {
	for _, row := range []struct {
		name   string
		err    error
		blamed []string // at once
	}{
		{"a refusal", refusal, []string{`Thing b: b: things "x" is forbidden: no; ask`}},
		{"a denial without a reason", denial, []string{"Thing b: b: denied; ask"}},
		{"a conflict", conflict, nil},
		{"an object that has gone", apierrors.NewNotFound(things, "x"), nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				s.answers["b"] = row.err
				for i, wait := range []time.Duration{200, 400, 800, 1000, 1000} {
					wait *= time.Millisecond
					tried, again, blamed, lost := s.round(t, "a", "b", "c")
					expect(t, "tried", tried, []string{"a", "b", "c"})
					expect(t, "again", again, wait)
					expect(t, "lost", lost, nil)
					if i == 0 {
						expect(t, "blamed", blamed, row.blamed)
					}
					if i == 4 && len(blamed) != 1 {
						t.Errorf("after five tries blamed are %v, want b", blamed)
					}
					reported := blamed
					time.Sleep(wait - time.Nanosecond) // of the bubble's clock
					tried, again, blamed, _ = s.round(t, "a", "b", "c")
					expect(t, "tried while b waits", tried, []string{"a", "c"})
					expect(t, "again while b waits", again, time.Nanosecond)
					expect(t, "blamed while b waits", blamed, reported)
					time.Sleep(time.Nanosecond)
				}
				delete(s.answers, "b")
				tried, again, blamed, _ := s.round(t, "b")
				expect(t, "tried", tried, []string{"b"})
				expect(t, "again, blamed when done", []any{again, len(blamed)}, []any{time.Duration(0), 0})
				s.answers["b"] = conflict
				_, again, blamed, _ = s.round(t, "b")
				expect(t, "again, blamed as if for the first time", []any{again, len(blamed)}, []any{200 * time.Millisecond, 0})
			})
		})
	}
}

// TestBlameLasts until the write is done: one conflict in between is no news.
func TestBlameLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		var reported []string
		for _, err := range []error{refusal, conflict, errAway, refusal} {
			s.answers["b"] = err
			_, wait, blamed, _ := s.round(t, "b")
			if reported == nil {
				reported = blamed
			}
			expect(t, "blamed", blamed, reported)
			time.Sleep(wait)
		}
		s.answers["b"] = denial
		_, _, blamed, _ := s.round(t, "b")
		expect(t, "blamed for something else", blamed, []string{"Thing b: b: denied; ask"})
	})
}

func TestWhatIsNotWantedIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.answers["b"] = refusal
		s.round(t, "b")
		s.round(t, "a")
		tried, again, _, _ := s.round(t, "b")
		expect(t, "tried", tried, []string{"b"})
		expect(t, "again", again, 200*time.Millisecond)
		s.Forget()
		tried, _, _, _ = s.round(t, "b")
		expect(t, "tried after Forget", tried, []string{"b"})
	})
}

// TestAfter skips what comes after a write that was refused or waits, without a time of its own.
func TestAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.answers["spec"], s.after["status"], s.after["rest"] = refusal, "spec", "status"
		for range 2 {
			_, again, blamed, _ := s.round(t, "spec", "status", "rest")
			expect(t, "again", again, 200*time.Millisecond)
			expect(t, "blamed", len(blamed), 1)
		}
		time.Sleep(200 * time.Millisecond)
		delete(s.answers, "spec")
		tried, again, _, _ := s.round(t, "spec", "status", "rest")
		expect(t, "tried", tried, []string{"spec", "status", "rest"})
		expect(t, "again", again, time.Duration(0))
	})
}

// TestLost ends the round at the first write without an answer, and blames nobody for it.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.answers["a"] = refusal
		_, _, reported, _ := s.round(t, "a", "b", "c")
		s.answers["b"] = errAway
		for range 10 {
			tried, again, blamed, lost := s.round(t, "b", "a", "c")
			expect(t, "tried", tried, []string{"b"})
			expect(t, "blamed", blamed, reported)
			if !errors.Is(lost, errAway) || lost.Error() != "b: connection refused" {
				t.Errorf("lost: %v", lost)
			}
			time.Sleep(max(again, time.Second))
		}
	})
}

func expect(t *testing.T, what string, have, want any) {
	t.Helper()
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("%s (-want +have):\n%s", what, diff)
	}
}
