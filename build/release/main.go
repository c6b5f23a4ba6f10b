// Command release makes all that a release has, in one folder: images of several architectures as an OCI layout,
// manifests and charts that name them, archives of the command line, lists of contents, checksums and their signature.
// Two runs with the same programs and packages give the same bytes. `make release` compiles the programs first.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/tombolo-net/tombolo/build/debian"
	"github.com/tombolo-net/tombolo/build/recipe"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	in := Inputs{Debian: map[string]debian.Root{}}
	flag.StringVar(&in.Version, "version", "", "version, such as v1.2.3")
	flag.StringVar(&in.Registry, "registry", "", "registry and path where the images will be")
	flag.StringVar(&in.Downloads, "downloads", "", "URL where the archives of the command line will be; without it "+
		"there is no manifest of the plugin for kubectl")
	flag.StringVar(&in.Programs, "programs", "", "folder with our programs, in a folder for each platform")
	flag.StringVar(&in.Out, "out", "", "folder to write")
	seconds := flag.Int64("time", 0, "time of all files, in seconds since 1970: of the commit")
	key := flag.String("key", "", "private key of OpenSSH, of type Ed25519; without it the checksums are not signed")
	packages := flag.String("packages", "", "folder for Debian's packages")
	sources := flag.String("sources", "", "file that names archives of Debian's packages, as apt's; this machine's own "+
		"without it")
	architectures := flag.String("architectures", "amd64,arm64", "architectures of the images")
	platforms := flag.String("platforms", "", "platforms of the command line, such as linux-amd64,darwin-arm64")
	flag.Parse()
	in.Time, in.Platforms = time.Unix(*seconds, 0).UTC(), strings.Split(*platforms, ",")
	if *key != "" {
		var err error
		if in.Key, err = signer(*key); err != nil {
			return err
		}
	}
	archives, err := debian.Sources(*sources)
	if err != nil {
		return err
	}
	for architecture := range strings.SplitSeq(*architectures, ",") {
		fmt.Printf("Debian's packages for %s\n", architecture)
		root, err := debian.Download(ctx, filepath.Join(*packages, architecture), architecture,
			archives, recipe.Packages...)
		if err != nil {
			return err
		}
		in.Debian[architecture] = root
	}
	if err := Make(in); err != nil {
		return err
	}
	fmt.Println(in.Out)
	if in.Key == nil {
		fmt.Println("The checksums are not signed: KEY=FILE names a private key.")
		return nil
	}
	fmt.Println("The line of the key for a file of allowed signers:\n" + public(in.Key))
	return nil
}
