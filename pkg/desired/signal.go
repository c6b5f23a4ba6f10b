package desired

// Signal wakes a writer that waits on c, a channel with room for one signal. It does not block: if a signal is pending
// already, that one suffices.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
