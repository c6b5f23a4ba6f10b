// The program pictures draws the documents' pictures: each .d2 file of a folder becomes an .svg file next to it, with
// `go run . ../../docs/pictures`. The text's SHA-256 is in each picture, so a test sees a picture that is older than
// its text without drawing it.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"oss.terrastruct.com/d2/d2graph"
	"oss.terrastruct.com/d2/d2layouts/d2elklayout"
	"oss.terrastruct.com/d2/d2lib"
	"oss.terrastruct.com/d2/d2renderers/d2svg"
	"oss.terrastruct.com/d2/lib/log"
	"oss.terrastruct.com/d2/lib/textmeasure"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER")
		os.Exit(2)
	}
	if err := drawAll(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pictures:", err)
		os.Exit(1)
	}
}

func drawAll(folder string) error {
	texts, err := filepath.Glob(filepath.Join(folder, "*.d2"))
	if err != nil {
		return fmt.Errorf("list the pictures' texts: %w", err)
	}
	for _, path := range texts {
		text, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("read a picture's text: %w", err)
		}
		svg, err := draw(text)
		if err != nil {
			return fmt.Errorf("draw %s: %w", path, err)
		}
		if err := os.WriteFile(strings.TrimSuffix(path, ".d2")+".svg", svg, 0o644); err != nil {
			return fmt.Errorf("write a picture: %w", err)
		}
	}
	return nil
}

// draw returns the picture of a text in D2 (https://d2lang.com) as SVG.
func draw(text []byte) ([]byte, error) {
	ruler, err := textmeasure.NewRuler()
	if err != nil {
		return nil, fmt.Errorf("load the fonts: %w", err)
	}
	layout := func(string) (d2graph.LayoutGraph, error) { return d2elklayout.DefaultLayout, nil }
	padding, number := int64(20), int64(0)
	options := &d2svg.RenderOpts{Pad: &padding, ThemeID: &number}
	ctx := log.With(context.Background(), slog.New(slog.NewTextHandler(io.Discard, nil)))
	compile := &d2lib.CompileOptions{Ruler: ruler, LayoutResolver: layout}
	diagram, _, err := d2lib.Compile(ctx, string(text), compile, options)
	if err != nil {
		return nil, fmt.Errorf("lay it out: %w", err)
	}
	svg, err := d2svg.Render(diagram, options)
	if err != nil {
		return nil, fmt.Errorf("render it: %w", err)
	}
	return fmt.Appendf(bytes.TrimSpace(svg), "\n<!-- sha256 of the text: %x -->\n", sha256.Sum256(text)), nil
}
