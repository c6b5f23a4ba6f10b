package multicluster

import (
	"encoding/xml"
	"fmt"
	"os"

	"github.com/tombolo-net/tombolo/pkg/multicluster/verify"
)

// junitSuites is a file of results as Jenkins, GitLab and others read it.
type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Name    string       `xml:"name,attr"`
	Suites  []junitSuite `xml:"testsuite"`
}

// junitSuite has the checks of two clusters.
type junitSuite struct {
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Errors   int         `xml:"errors,attr"`
	Skipped  int         `xml:"skipped,attr"`
	Time     string      `xml:"time,attr"`
	Cases    []junitCase `xml:"testcase"`
}

// junitCase is a check.
type junitCase struct {
	Name    string      `xml:"name,attr"`
	Class   string      `xml:"classname,attr"`
	Time    string      `xml:"time,attr"`
	Failure *junitNote  `xml:"failure"`
	Error   *junitNote  `xml:"error"`
	Skipped *junitNote  `xml:"skipped"`
	Out     *junitPlain `xml:"system-out"`
}

// junitNote is the reason why a check failed, was skipped or left objects. Its text is the remedy.
type junitNote struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// junitPlain is a text.
type junitPlain struct {
	Text string `xml:",chardata"`
}

// junitOf returns the results of pairs as JUnit has them.
func junitOf(pairs []verify.Pair) junitSuites {
	all := junitSuites{Name: "tombolo mc verify"}
	for _, p := range pairs {
		s := junitSuite{Name: p.A + ", " + p.B, Tests: len(p.Results), Failures: p.Count(verify.Fail),
			Skipped: p.Count(verify.Skip)}
		seconds, class := 0.0, "tombolo.mc.verify."+p.A+"-"+p.B
		for _, r := range p.Results {
			c := junitCase{Name: r.Check, Class: class, Time: fmt.Sprintf("%.3f", r.Seconds)}
			switch r.Status {
			case verify.Fail:
				c.Failure = &junitNote{r.Detail, r.Remedy}
			case verify.Skip:
				c.Skipped = &junitNote{Message: r.Detail}
			default:
				c.Out = &junitPlain{r.Detail}
			}
			s.Cases, seconds = append(s.Cases, c), seconds+r.Seconds
		}
		if p.Left != nil {
			s.Tests, s.Errors = s.Tests+1, 1
			s.Cases = append(s.Cases, junitCase{Name: "cleanup", Class: class, Time: "0.000",
				Error: &junitNote{Message: p.Left.Error()}})
		}
		s.Time = fmt.Sprintf("%.3f", seconds)
		all.Suites = append(all.Suites, s)
	}
	return all
}

// writeJUnit writes the results of pairs to a file.
func writeJUnit(path string, pairs []verify.Pair) error {
	text, err := xml.MarshalIndent(junitOf(pairs), "", "  ")
	if err == nil {
		err = os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644)
	}
	if err != nil {
		return fmt.Errorf("--junit: %w; name a file that can be written", err)
	}
	return nil
}
