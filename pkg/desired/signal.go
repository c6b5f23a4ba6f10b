package desired

// Signal wakes a writer that waits on c, a channel with room for one signal. It does not block: a signal that waits
// already stands for this one too.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
