package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Next is the tag of the images that LoadNext brings, and the version that their programs report.
const Next = "next"

// LoadNext brings the second version of agent and controller, as `make next` makes it, to all Nodes:
// NextImage("tombolo-agent") and NextImage("tombolo-controller"). No workload uses them before it names them.
func (s *Scenario) LoadNext(ctx context.Context) error {
	for _, image := range []string{"tombolo-agent", "tombolo-controller"} {
		tar := filepath.Join(s.Lab.Repo(), "bin", Next, image+".tar")
		if _, err := os.Stat(tar); err != nil {
			return fmt.Errorf("an image of the next version is missing, run `make next`: %w", err)
		}
		if err := s.Lab.LoadImage(ctx, tar); err != nil {
			return err
		}
	}
	return nil
}

// NextImage is an image of Tombolo in its next version, such as tombolo/tombolo-agent:next.
func NextImage(name string) string { return "tombolo/" + name + ":" + Next }
