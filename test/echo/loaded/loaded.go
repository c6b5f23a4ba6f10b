// Package loaded is what `echo load` prints.
package loaded

// Result is what a time of asking has come to.
type Result struct {
	Seconds  float64 `json:"seconds"`
	Requests int     `json:"requests"`
	Bytes    int64   `json:"bytes"` // of answers' bodies
	P50      float64 `json:"p50"`   // of one request, in seconds; of a new connection and its request
	P99      float64 `json:"p99"`
}
