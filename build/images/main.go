// Command images makes Tombolo's container images without a registry or a container engine: archives that `ctr images
// import` and `docker load` read. Foreign programs come from the Debian packages of this machine, with the libraries
// that they link.
//
//	images [-tag TAG] BIN OUTPUT [NAME...]
//
// BIN holds our compiled programs. TAG is the tag of our images, dev by default. build/*/Dockerfile have the same for
// users of a registry. Images of other projects' suites are made only if they are named. `make release` makes images of
// packages that it downloads, for several architectures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/imagetar"
	"github.com/tombolo-net/tombolo/build/recipe"
)

func main() {
	tag := flag.String("tag", "dev", "tag of the images")
	flag.Parse()
	if err := run(*tag, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(tag string, args []string) error {
	if len(args) < 2 {
		return errors.New("want [-tag TAG] BIN OUTPUT [NAME...]")
	}
	bin, out, names := args[0], args[1], args[2:]
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, img := range recipe.Images {
		if len(names) > 0 && !slices.Contains(names, img.Name) || len(names) == 0 && img.Suite != "" {
			continue
		}
		made, err := img.Make(bin, debian.Host(), tag)
		if err == nil {
			err = imagetar.Write(filepath.Join(out, img.Name+".tar"), made)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", img.Name, err)
		}
	}
	return nil
}
