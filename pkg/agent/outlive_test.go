package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestOutlive ends the agent while a request is being undone. The writers continue until that is done.
func TestOutlive(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	work, done, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	err := outlive(ctx, func(ctx context.Context) error {
		cancel()
		<-ctx.Done()
		select { // time for a writer that ends with it
		case <-ended:
		case <-time.After(50 * time.Millisecond):
		}
		select { // undone by the writer
		case work <- struct{}{}:
			<-done
			return ctx.Err()
		case <-time.After(5 * time.Second):
			t.Error("the writer has ended before the request is undone")
			return nil
		}
	}, func(ctx context.Context) error {
		defer close(ended)
		for {
			select {
			case <-work:
				done <- struct{}{}
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	if err != nil {
		t.Error(err)
	}

	failure := errors.New("a writer fails for good")
	err = outlive(t.Context(), func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}, func(context.Context) error { return failure }, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, failure) {
		t.Errorf("%v, want %v", err, failure)
	}
	err = outlive(t.Context(), func(context.Context) error { return failure }, func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	})
	if !errors.Is(err, failure) {
		t.Errorf("%v, want %v", err, failure)
	}
}
