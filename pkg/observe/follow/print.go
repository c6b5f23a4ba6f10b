package follow

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"

	"github.com/tombolo-net/tombolo/pkg/observe/api"
	"github.com/tombolo-net/tombolo/pkg/observe/hops"
)

// Print writes the paths as text. With wide it writes each flow, else the flows of objects other than the Node.
func Print(w io.Writer, a Answer, wide bool) error {
	var b strings.Builder
	for _, text := range a.Networks {
		fmt.Fprintf(&b, "Network: %s\n", text)
	}
	for i, p := range a.Paths {
		if i > 0 || len(a.Networks) > 0 {
			b.WriteString("\n")
		}
		for i, h := range p.Hops {
			printHop(&b, i+1, h, wide)
		}
		fmt.Fprintf(&b, "=> %s\n", p.End.Text)
	}
	_, err := io.WriteString(w, printable(b.String()))
	return err
}

// printable replaces characters that change a terminal. Users choose the names of rules.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, text)
}

// PrintRaw writes what ofproto/trace has answered on each Node.
func PrintRaw(w io.Writer, a Answer) error {
	for _, p := range a.Paths {
		for i, h := range p.Hops {
			if _, err := fmt.Fprintf(w, "%d. Node %s/%s: %s\n%s\n", i+1, h.Cluster, h.Node, h.Packet, h.Output); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprintf(w, "=> %s\n", p.End.Text); err != nil {
			return err
		}
	}
	return nil
}

// printHop writes the path through a Node.
func printHop(b *strings.Builder, number int, h hops.Hop, wide bool) {
	fmt.Fprintf(b, "%d. Node %s/%s: %s\n", number, h.Cluster, h.Node, h.Packet)
	width := 0
	for _, s := range h.Steps {
		width = max(width, len(s.Table))
	}
	choices := slices.Clone(h.Choices)
	for _, s := range h.Steps {
		choice := ""
		if i := slices.IndexFunc(choices, func(c api.HopChoice) bool { return c.Owner == s.Owner }); i >= 0 &&
			s.Table != "Classify" {
			choice = choiceText(choices[i])
			choices = slices.Delete(choices, i, i+1)
		}
		owner := s.Owner
		if s.Rule != "" {
			owner = s.Rule
		}
		if !wide && choice == "" && (s.Priority == 0 || owner == "Node "+h.Node) {
			continue
		}
		line := fmt.Sprintf("   %-*s  %s", width, s.Table, owner)
		if wide {
			line += fmt.Sprintf("  [priority %d, %s]", s.Priority, s.Match)
		}
		b.WriteString(strings.TrimRight(line, " ") + choice + "\n")
	}
	for _, c := range choices {
		fmt.Fprintf(b, "   %s%s\n", c.Owner, choiceText(c))
	}
	if n := h.End.Next; n != nil {
		to := "Node " + n.Node
		if n.Node == "" {
			to = "cluster " + n.Cluster
		}
		if n.OuterDst == "" {
			fmt.Fprintf(b, "   -> to %s, by the host's routes\n", to)
		} else {
			fmt.Fprintf(b, "   -> to %s, by the tunnel to %s\n", to, n.OuterDst)
		}
	}
	if h.End.Verdict == api.HopForwarded && h.End.Message != "" {
		fmt.Fprintf(b, "      %s\n", h.End.Message)
	}
}

// choiceText is the choice of a group in words.
func choiceText(c api.HopChoice) string {
	name := func(x api.HopBucket) string {
		text := x.To
		if x.Name != "" {
			text += " (" + x.Name + ")"
		}
		if x.Weight > 1 {
			text += fmt.Sprintf(" weight %d", x.Weight)
		}
		return text
	}
	if c.Chosen < 0 || c.Chosen >= len(c.Buckets) {
		return fmt.Sprintf(": none of %d choices is alive", len(c.Buckets)+c.LeftOut)
	}
	if name(c.Buckets[c.Chosen]) == "" {
		return "" // it leads to another group, whose choice follows
	}
	text := ": chooses " + name(c.Buckets[c.Chosen])
	var others []string
	for i, x := range c.Buckets {
		if t := name(x); i != c.Chosen && t != name(c.Buckets[c.Chosen]) && !slices.Contains(others, t) {
			others = append(others, t)
		}
	}
	const most = 5
	if more := len(others) - most + c.LeftOut; len(others) > most {
		others = append(others[:most], fmt.Sprintf("%d more", more))
	}
	if len(others) > 0 {
		text += ", not " + strings.Join(others, ", ")
	}
	return text
}
