package scenario

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Next is the tag of the images that LoadNext loads, and the version that their programs report.
const Next = "next"

// LoadNext loads the second version of agent and controller, which `make next` makes, on all Nodes:
// NextImage("tombolo-agent") and NextImage("tombolo-controller"). No workload uses these images until it names them.
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
