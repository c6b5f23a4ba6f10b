package gather

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Names of the files that describe a bundle.
const (
	ManifestName = "manifest.json"
	indexName    = "index.html"
)

// Manifest describes a bundle.
type Manifest struct {
	Version    string    `json:"version"` // of the program that made it
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended"`
	Anonymized bool      `json:"anonymized"`
	// Complete is false if the bundle ends early, as after an interrupt or on a full disk.
	Complete bool       `json:"complete"`
	Clusters []Contents `json:"clusters"`
	Files    []File     `json:"files"`
	Failures []Failure  `json:"failures"`
}

// Contents is the part of one cluster in a bundle.
type Contents struct {
	Name       string   `json:"name"`
	Folder     string   `json:"folder"`               // of its files
	Kubernetes string   `json:"kubernetes,omitempty"` // its version; empty if the API server did not answer
	Clock      string   `json:"clock,omitempty"`      // the API server's time less this machine's
	Nodes      []string `json:"nodes,omitempty"`      // whose agents were asked
	Absent     []string `json:"absent,omitempty"`     // kinds that the cluster does not have
}

// File is one file of a bundle.
type File struct {
	Name   string `json:"name"`
	Size   int    `json:"size"`
	SHA256 string `json:"sha256"`
}

// Failure is a part that is not in a bundle.
type Failure struct {
	Part  string `json:"part"` // as the name of its file, or of the folder
	Error string `json:"error"`
}

// clean is a text without secrets. Only such texts come into an archive.
type clean []byte

// output is where an archive is written to. *os.File is one.
type output interface {
	io.Writer
	Seek(offset int64, whence int) (int64, error)
	Truncate(size int64) error
}

// archive writes files as a .tar.gz. Each file is a gzip member of its own. So the archive can be cut off after any
// file, and end there.
type archive struct {
	now func() time.Time

	mu       sync.Mutex
	to       output
	offset   int64
	begins   []int64 // of each file of the manifest
	err      error   // the first failed write
	manifest Manifest
}

// add adds a file. After a failed write it does nothing: the error is in the archive.
func (a *archive) add(name string, content clean) {
	part, err := member(name, content, a.now())
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil {
		a.manifest.Failures = append(a.manifest.Failures, Failure{Part: name, Error: err.Error()})
		return
	}
	if a.err != nil {
		a.manifest.Failures = append(a.manifest.Failures, Failure{Part: name, Error: "not written: " + a.err.Error()})
		return
	}
	if _, err := a.to.Write(part); err != nil {
		a.err = err
		a.manifest.Failures = append(a.manifest.Failures, Failure{Part: name, Error: "not written: " + err.Error()})
		return
	}
	sum := sha256.Sum256(content)
	a.manifest.Files = append(a.manifest.Files, File{Name: name, Size: len(content), SHA256: hex.EncodeToString(sum[:])})
	a.begins = append(a.begins, a.offset)
	a.offset += int64(len(part))
}

// failed notes a part that could not be read.
func (a *archive) failed(part string, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.manifest.Failures = append(a.manifest.Failures, Failure{Part: part, Error: MaskText(err.Error())})
}

// contents changes what the manifest has about a cluster.
func (a *archive) contents(change func(*Manifest)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change(&a.manifest)
}

// close writes the manifest and the page, and ends the archive. If there is no room for them, it removes the last files
// until there is.
func (a *archive) close(complete bool) (Manifest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := &a.manifest
	for {
		m.Ended, m.Complete = a.now().UTC(), complete && a.err == nil
		slices.SortFunc(m.Failures, func(x, y Failure) int { return strings.Compare(x.Part, y.Part) })
		slices.SortFunc(m.Clusters, func(x, y Contents) int { return strings.Compare(x.Name, y.Name) })
		end, err := describe(*m, a.now())
		if err != nil {
			return *m, err
		}
		err = errors.Join(a.to.Truncate(a.offset), seek(a.to, a.offset))
		if err == nil {
			_, err = a.to.Write(end)
		}
		if err == nil {
			return *m, a.err
		}
		if a.err == nil {
			a.err = err
		}
		last := len(m.Files) - 1
		if last < 0 {
			return *m, a.err
		}
		m.Failures = append(m.Failures, Failure{Part: m.Files[last].Name, Error: "not written: " + err.Error()})
		m.Files, a.offset, a.begins = m.Files[:last], a.begins[last], a.begins[:last]
	}
}

func seek(to output, offset int64) error {
	_, err := to.Seek(offset, io.SeekStart)
	return err
}

// describe returns the last bytes of an archive: manifest, page, and the blocks that end a tar file.
func describe(m Manifest, now time.Time) ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, err
	}
	var html bytes.Buffer
	if err := page.Execute(&html, m); err != nil {
		return nil, err
	}
	first, err := member(ManifestName, append(text, '\n'), now)
	if err != nil {
		return nil, err
	}
	second, err := member(indexName, html.Bytes(), now)
	if err != nil {
		return nil, err
	}
	var end bytes.Buffer
	z := gzip.NewWriter(&end)
	if err := errors.Join(tar.NewWriter(z).Close(), z.Close()); err != nil {
		return nil, err
	}
	return slices.Concat(first, second, end.Bytes()), nil
}

// member returns a file of a tar archive as a member of a gzip file.
func member(name string, content []byte, now time.Time) ([]byte, error) {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	t := tar.NewWriter(z)
	header := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(content)), ModTime: now.Truncate(time.Second),
		Format: tar.FormatPAX}
	if err := t.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := t.Write(content); err != nil {
		return nil, err
	}
	// No Close: the blocks that end an archive come once.
	if err := errors.Join(t.Flush(), z.Close()); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// page lists files and failures. It has no scripts, and html/template escapes the names.
var page = template.Must(template.New(indexName).Parse(`<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Tombolo bundle</title>
<style>
body{font-family:sans-serif;margin:2em}
table{border-collapse:collapse}
td,th{text-align:left;padding:.1em 1em .1em 0;vertical-align:top}
td.n{text-align:right}
</style>
</head>
<body>
<h1>Tombolo bundle</h1>
<p>Made by {{.Version}} from {{.Started.Format "2006-01-02 15:04:05 UTC"}} to {{.Ended.Format "15:04:05 UTC"}}.
{{if not .Complete}}<strong>It ended early: files are missing.</strong>{{end}}
{{if .Anonymized}}Names of Pods, Namespaces and Services are replaced.{{end}}</p>
<h2>Clusters</h2>
<table><tr><th>Cluster</th><th>Kubernetes</th><th>Clock</th><th>Nodes</th><th>Kinds it does not have</th></tr>
{{range .Clusters}}<tr><td>{{.Name}}</td><td>{{or .Kubernetes "no answer"}}</td><td>{{.Clock}}</td>
<td>{{len .Nodes}}</td><td>{{range .Absent}}{{.}} {{end}}</td></tr>
{{end}}</table>
<h2>Missing parts</h2>
{{if .Failures}}<table><tr><th>Part</th><th>Why</th></tr>
{{range .Failures}}<tr><td>{{.Part}}</td><td>{{.Error}}</td></tr>
{{end}}</table>{{else}}<p>Nothing.</p>{{end}}
<h2>Files</h2>
<table><tr><th>File</th><th>Bytes</th></tr>
{{range .Files}}<tr><td><a href="{{.Name}}">{{.Name}}</a></td><td class="n">{{.Size}}</td></tr>
{{end}}</table>
</body>
</html>
`))

// largest is the size of the largest file that is read from a bundle.
const largest = 1 << 30

// Bundle is a bundle that was read.
type Bundle struct {
	Manifest Manifest

	path  string
	files map[string][]byte
}

// Open reads a bundle. It checks the files against the manifest.
func Open(path string) (*Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer f.Close()
	b := &Bundle{path: path, files: map[string][]byte{}}
	notOurs := func(err error) error {
		return fmt.Errorf("read the bundle %s: %w; name a file that `tombolo gather` wrote", path, err)
	}
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, notOurs(err)
	}
	for t := tar.NewReader(z); ; {
		header, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, notOurs(err)
		}
		if header.Size > largest {
			return nil, notOurs(fmt.Errorf("%s has %d bytes", header.Name, header.Size))
		}
		if b.files[header.Name], err = io.ReadAll(t); err != nil {
			return nil, notOurs(err)
		}
	}
	text, ok := b.files[ManifestName]
	if !ok {
		return nil, notOurs(fmt.Errorf("it has no %s", ManifestName))
	}
	if err := json.Unmarshal(text, &b.Manifest); err != nil {
		return nil, notOurs(err)
	}
	for _, file := range b.Manifest.Files {
		if sum := sha256.Sum256(b.files[file.Name]); hex.EncodeToString(sum[:]) != file.SHA256 {
			return nil, notOurs(fmt.Errorf("%s is not the file of the manifest", file.Name))
		}
	}
	return b, nil
}

// ReadFile returns a file of the bundle. If it is missing, the error has the reason.
func (b *Bundle) ReadFile(name string) ([]byte, error) {
	if content, ok := b.files[name]; ok {
		return content, nil
	}
	for _, f := range b.Manifest.Failures {
		if f.Part == name || strings.HasPrefix(name, f.Part+"/") {
			return nil, fmt.Errorf("the bundle %s has no %s: %s", b.path, name, f.Error)
		}
	}
	return nil, fmt.Errorf("the bundle %s: %s: %w", b.path, name, fs.ErrNotExist)
}
