package problem

import (
	"fmt"
	"strings"
)

// Few returns at most three names as a text: "a, b, c and 2 more".
func Few(names []string) string {
	const most = 3
	if more := len(names) - most; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}
