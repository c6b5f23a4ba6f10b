package agent

import (
	"os"
	"testing"

	"github.com/tombolo-net/tombolo/test/leaks"
)

func TestMain(m *testing.M) {
	if spec := os.Getenv(asRotatingSide); spec != "" {
		if err := rotatingSide(spec); err != nil {
			println(err.Error())
			os.Exit(1)
		}
		os.Exit(0)
	}
	leaks.Main(m)
}
