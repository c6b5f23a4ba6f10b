package main

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	agent "github.com/tombolo-net/tombolo/cmd/tombolo-agent/flags"
	controller "github.com/tombolo-net/tombolo/cmd/tombolo-controller/flags"
	tombolo "github.com/tombolo-net/tombolo/cmd/tombolo/program"
)

// commands writes the page of the programs' commands and flags.
func commands(_ string, p *page) error {
	p.prose("`kubectl-tombolo` has the commands of `tombolo`. The program answers `antctl` commands if it is called " +
		"by that name.")
	for _, root := range []*cobra.Command{
		tombolo.Command("tombolo"), tombolo.Command("antctl"), agent.Command(agent.Run{}),
		controller.Command(controller.Run{}),
	} {
		p.section(2, root.Name())
		p.command(root)
	}
	return nil
}

// command adds a command and all below it. Hidden ones are left out.
func (p *page) command(c *cobra.Command) {
	if c.HasParent() {
		p.section(3, c.CommandPath())
	}
	if c.Short == "" {
		p.bare = append(p.bare, c.CommandPath())
	}
	p.text("%s", plain(c.Short)+".")
	if c.Long != "" {
		p.text("```text\n%s\n```", strings.TrimSpace(c.Long))
	}
	if c.Runnable() {
		p.text("```\n%s\n```", c.UseLine())
	}
	if c.Example != "" {
		p.text("```sh\n%s\n```", unindented(c.Example))
	}
	rows := p.table("flag", "default", "meaning")
	own := func(f *pflag.Flag) {
		if f.Hidden || f.Deprecated != "" || f.Name == "help" || f.Name == "version" {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" && f.ShorthandDeprecated == "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if value != "" {
			name += " " + value
		}
		rows.described(c.CommandPath()+" --"+f.Name, entry{code(name), code(defaultOf(f)), sentence(usage)})
	}
	c.LocalFlags().VisitAll(own)
	if c.HasAvailableInheritedFlags() && !c.IsAdditionalHelpTopicCommand() {
		p.text("It also has the flags of %s.", parents(c))
	}
	for _, below := range c.Commands() {
		if below.IsAdditionalHelpTopicCommand() ||
			below.IsAvailableCommand() && below.Name() != "help" && below.Name() != "completion" {
			p.command(below)
		}
	}
}

// parents returns links to the commands above that have flags for those below them.
func parents(c *cobra.Command) string {
	var links []string
	c.VisitParents(func(above *cobra.Command) {
		if above.HasAvailablePersistentFlags() {
			anchor := strings.ReplaceAll(above.CommandPath(), " ", "-")
			links = append(links, link(code(above.CommandPath()), "#"+anchor))
		}
	})
	return strings.Join(links, " and ")
}

func sentence(usage string) string { return plain(strings.TrimSuffix(usage, ".")) }

// defaultOf returns the default of a flag. The zero value of a type is empty.
func defaultOf(f *pflag.Flag) string {
	switch f.DefValue {
	case "false", "[]", "0s":
		return ""
	}
	return f.DefValue
}

// unindented removes the blanks before the lines of an example.
func unindented(text string) string {
	var lines []string
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return strings.Join(lines, "\n")
}
