// Package openflow has the commands that read, write and compare OpenFlow messages, its text form and the state of
// switches.
package openflow

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/openflow/flow"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofp"
	"github.com/tombolo-net/tombolo/pkg/openflow/ofprint"
)

// Command returns the group openflow: commands that need no cluster, only an Open vSwitch or a few of its messages.
func Command() *cobra.Command {
	cmd := cli.Group("openflow", "Read, write and compare OpenFlow 1.5: bytes, text, and switches on any machine",
		printMessages(), parseFlows(), encodeFlows(), dumpSwitch(), diffFlows(), replaceFlows(), monitorSwitch())
	cmd.Aliases = []string{"of"}
	cmd.Long = cmd.Short + ".\n\nText is ovs-ofctl's. These commands need neither Kubernetes nor Tombolo's agent."
	return cmd
}

func printMessages() *cobra.Command {
	var options ofprint.Options
	cmd := &cobra.Command{
		Use:   "print HEX...|-",
		Short: "Show in words what OpenFlow messages say (ovs-ofctl ofp-print)",
		Long: "Show in words what OpenFlow messages say, as `ovs-ofctl ofp-print` does.\n\n" +
			"HEX is the bytes of one or more OpenFlow 1.5 messages, in words or on standard input (-).\n" +
			"Blanks, line breaks, colons and 0x are skipped, and so are the offsets and the letters of a\n" +
			"hex dump such as Open vSwitch writes into its log.",
		Example: "  tombolo openflow print 0614000800000007\n" +
			"  tombolo openflow print 06:02:00:08:00:00:00:01 06:15:00:08:00:00:00:02\n" +
			"  xxd -p capture.bin | tombolo openflow print -",
		Args: someWords("print", "the bytes of a message, such as 0614000800000007, or -"),
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if len(args) == 1 && args[0] == "-" {
				b, err := io.ReadAll(cmd.InOrStdin())
				if err != nil {
					return fmt.Errorf("read standard input: %w", err)
				}
				text = string(b)
			}
			wire, err := parseHex(text)
			if err != nil {
				return err
			}
			return printAll(cmd.OutOrStdout(), options, wire)
		},
	}
	cmd.Flags().IntVar(&options.Verbosity, "verbosity", ofprint.DefaultVerbosity,
		"0 leaves out packets and ports' counters; 3 adds bytes of packets, 5 of messages")
	return cmd
}

// someWords is the arguments of a command that needs one at least.
func someWords(name, what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return fmt.Errorf("%s needs %s", name, what)
		}
		return nil
	}
}

// printAll prints the messages one after the other. A fault in one message does not hide the next one, since the length
// in its header gives the next one's beginning.
func printAll(w io.Writer, options ofprint.Options, wire []byte) error {
	if len(wire) == 0 {
		return errors.New("no bytes given")
	}
	var bad []error
	for n, at := 1, 0; at < len(wire); n++ {
		rest := wire[at:]
		size := ofp.MessageLen(rest)
		switch {
		case len(rest) < 8:
			bad = append(bad, fmt.Errorf("message %d, at byte %d: %d bytes are there, and a header alone has 8", n, at,
				len(rest)))
			return errors.Join(bad...)
		case size < 8:
			bad = append(bad, fmt.Errorf("message %d, at byte %d: its length field says %d bytes, and a header alone has 8", n,
				at, size))
			return errors.Join(bad...)
		case size > len(rest):
			bad = append(bad, fmt.Errorf("message %d, at byte %d: its length field says %d bytes, and %d are there%s", n, at,
				size, len(rest), whatIsCut(rest)))
			return errors.Join(bad...)
		}
		text, err := options.AppendBytes(nil, rest[:size])
		if err != nil {
			bad = append(bad, fmt.Errorf("message %d, at byte %d: %w", n, at, err))
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		at += size
	}
	return errors.Join(bad...)
}

// whatIsCut returns the kind of an incomplete message.
func whatIsCut(b []byte) string {
	if b[0] != ofp.Version {
		return ""
	}
	return fmt.Sprintf(": it is the beginning of a %s", ofp.Type(b[1]))
}

// parseHex reads bytes as people write them.
func parseHex(text string) ([]byte, error) {
	var out []byte
	number := 0
	for line := range strings.Lines(text) {
		number++
		column := 1
		if cut, n := hexDumpLine(line); n > 0 {
			line, column = cut, n+1
		}
		for i := 0; i < len(line); {
			switch c := line[i]; {
			case c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == ':' || c == ',' || c == '-':
				i++
			case c == '0' && i+1 < len(line) && (line[i+1] == 'x' || line[i+1] == 'X'):
				i += 2
			case hexDigit(c) && i+1 < len(line) && hexDigit(line[i+1]):
				b, err := hex.DecodeString(line[i : i+2])
				if err != nil {
					return nil, err
				}
				out = append(out, b...)
				i += 2
			case hexDigit(c):
				return nil, fmt.Errorf("line %d, column %d: a byte has two hexadecimal digits, and %q stands alone", number,
					column+i, c)
			default:
				r := []rune(line[i:])[0]
				return nil, fmt.Errorf("line %d, column %d: %q is no hexadecimal digit", number, column+i, r)
			}
		}
	}
	return out, nil
}

func hexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

// hexDumpLine extracts the bytes from a line of Open vSwitch's hex dumps, "00000010 06 0e 00 58-... |..X|". It returns
// the length of the text before them, or 0 for other lines.
func hexDumpLine(line string) (string, int) {
	const offset = 10 // eight digits and two blanks
	if len(line) < offset+2 || line[8:10] != "  " || line[9] == line[10] {
		return line, 0
	}
	for i := range 8 {
		if !hexDigit(line[i]) {
			return line, 0
		}
	}
	rest := line[offset:]
	if i := strings.IndexByte(rest, '|'); i >= 0 {
		rest = rest[:i]
	}
	return rest, offset
}

// flowInput is where flows in text come from: words, files and standard input.
type flowInput struct{ files []string }

func (in *flowInput) flag(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&in.files, "file", "f", nil,
		"read flows from this file, as ovs-ofctl add-flows does (- is standard input)")
}

// place is where a flow stands: a file and its line, or a word of the command line.
type place struct {
	name string
	line int // from 1, 0 for a word
}

func (p place) String() string {
	if p.line == 0 {
		return p.name
	}
	return fmt.Sprintf("%s, line %d", p.name, p.line)
}

// each calls f with every flow: text, and where it stands.
func (in *flowInput) each(cmd *cobra.Command, args []string, f func(where place, text string) error) error {
	if len(args)+len(in.files) == 0 {
		return fmt.Errorf("%s needs a flow, such as \"priority=5,ip,actions=drop\", or - for standard input", cmd.Name())
	}
	for i, arg := range args {
		if arg == "-" {
			if err := eachLine(cmd, arg, f); err != nil {
				return err
			}
			continue
		}
		where := place{name: "the flow"}
		if len(args) > 1 {
			where.name = fmt.Sprintf("flow %d", i+1)
		}
		if err := f(where, arg); err != nil {
			return err
		}
	}
	for _, file := range in.files {
		if err := eachLine(cmd, file, f); err != nil {
			return err
		}
	}
	return nil
}

// eachLine calls f with every line of a file that is not empty. Text after # is a comment.
func eachLine(cmd *cobra.Command, file string, f func(where place, text string) error) error {
	name, r := file, cmd.InOrStdin()
	if file == "-" {
		name = "standard input"
	} else {
		opened, err := os.Open(file)
		if err != nil {
			return fmt.Errorf("read flows: %w", err)
		}
		defer opened.Close()
		r = opened
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return fmt.Errorf("read flows from %s: %w", name, err)
	}
	number := 0
	for line := range strings.Lines(string(b)) {
		number++
		line, _, _ = strings.Cut(line, "#")
		if dumpHeading(line) {
			continue
		}
		if line = strings.TrimRight(line, " \t\r\n"); strings.TrimSpace(line) == "" {
			continue
		}
		if err := f(place{name, number}, line); err != nil {
			return err
		}
	}
	return nil
}

// dumpHeading reports whether a line is the heading of ovs-ofctl dump-flows, dump-groups or dump-meters: "OFPST_FLOW
// reply (OF1.5) (xid=0x2):".
func dumpHeading(line string) bool {
	return (strings.HasPrefix(line, "OFPST_") || strings.HasPrefix(line, "NXST_")) && strings.Contains(line, " reply (")
}

// parseMod reads one line and refuses a change that a switch would refuse. It warns of conditions that a switch never
// gets.
func parseMod(cmd *cobra.Command, where place, text string) (flow.Mod, error) {
	m, err := flow.ParseMod(text)
	// A delete command has no actions that could be wrong, and may name all tables.
	if err == nil && m.Command != ofp.FlowDelete && m.Command != ofp.FlowDeleteStrict {
		err = m.Flow.Err()
	}
	if err == nil {
		for _, f := range m.Unsent {
			fmt.Fprintf(cmd.ErrOrStderr(), "tombolo: warning: %s: %s is left out, as by ovs-ofctl: "+
				"Open vSwitch sends it only together with ct_nw_proto\n", where, f)
		}
	}
	return m, inFile(where, err)
}

// parseFlow reads a flow as it stands in a switch: a line that adds one.
func parseFlow(cmd *cobra.Command, where place, text string) (flow.Flow, error) {
	m, err := parseMod(cmd, where, text)
	if err == nil && m.Command != ofp.FlowAdd {
		err = fmt.Errorf("%s: %q is not a flow but a change: here the file lists what the switch holds", where, text)
	}
	return m.Flow, err
}

func parseFlows() *cobra.Command {
	var in flowInput
	cmd := &cobra.Command{
		Use:   "parse FLOW...|-",
		Short: "Check flows in text and show them in canonical form, one a line",
		Long: "Check flows in text and show them in canonical form, one a line: the form in which\n" +
			"`ovs-ofctl dump-flows --no-stats` shows what a switch has made of them.\n\n" +
			"Flows stand in words, in files (-f) or on standard input (-), there one a line with\n" +
			"comments after #. A line may begin with add, modify, modify_strict, delete or\n" +
			"delete_strict. All that is wrong is reported; the exit code is then 1.",
		Example: "  tombolo openflow parse " +
			"'tcp,nw_dst=10.0.0.0/8,tp_dst=80,actions=mod_dl_src:02:00:00:00:00:01,output:3'\n" +
			"  tombolo openflow parse -f flows.txt",
		RunE: func(cmd *cobra.Command, args []string) error {
			var bad []error
			err := in.each(cmd, args, func(where place, text string) error {
				m, err := parseMod(cmd, where, text)
				if err != nil {
					bad = append(bad, err)
					return nil
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), m)
				return err
			})
			return errors.Join(append(bad, err)...)
		},
	}
	in.flag(cmd)
	return cmd
}

func encodeFlows() *cobra.Command {
	var in flowInput
	cmd := &cobra.Command{
		Use:   "encode FLOW...|-",
		Short: "Show the bytes of the OFPT_FLOW_MOD of each flow, one line each",
		Long: "Show the bytes of the OFPT_FLOW_MOD (OpenFlow 1.5) of each flow in hexadecimal, one line\n" +
			"each. Transaction ids count up from 1. Flows are added unless they begin with modify,\n" +
			"modify_strict, delete or delete_strict.",
		Example: "  tombolo openflow encode 'table=2,ip,actions=dec_ttl,output:3'\n" +
			"  tombolo openflow encode 'delete table=2,ip,out_port=3'\n" +
			"  tombolo openflow encode -f flows.txt | tombolo openflow print -",
		RunE: func(cmd *cobra.Command, args []string) error {
			var bad []error
			xid := uint32(0)
			err := in.each(cmd, args, func(where place, text string) error {
				m, err := parseMod(cmd, where, text)
				if err != nil {
					bad = append(bad, err)
					return nil
				}
				xid++
				b, err := ofp.AppendMessage(nil, xid, m.Message())
				if err != nil {
					bad = append(bad, fmt.Errorf("%s: %w", where, err))
					return nil
				}
				_, err = fmt.Fprintln(cmd.OutOrStdout(), hex.EncodeToString(b))
				return err
			})
			return errors.Join(append(bad, err)...)
		},
	}
	in.flag(cmd)
	return cmd
}
