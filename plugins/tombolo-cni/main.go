// Command tombolo-cni is the CNI plugin: it passes each command of the container runtime to the Tombolo agent of the
// Node and prints the answer. It starts for every Pod, so it does nothing else.
package main

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	cniversion "github.com/containernetworking/cni/pkg/version"

	"github.com/tombolo-net/tombolo/pkg/cni/wire"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// timeout bounds one command; the agent's own limits are shorter.
const timeout = 110 * time.Second

func main() { os.Exit(run()) }

func run() int {
	ask := func(path string) func(*skel.CmdArgs) error {
		return func(args *skel.CmdArgs) error { return call(path, args) }
	}
	about := "tombolo-cni " + version.String() + ": asks the Tombolo agent of this Node"
	err := skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add:    ask(wire.PathAdd),
		Del:    ask(wire.PathDel),
		Check:  ask(wire.PathCheck),
		Status: ask(wire.PathStatus),
		GC:     ask(wire.PathGC),
	}, cniversion.PluginSupports(wire.SupportedVersions...), about)
	if err == nil {
		return 0
	}
	if err.Details == "" {
		err.Details = remedies[err.Code]
	}
	_ = err.Print() // standard output is all there is to say it on
	return 1
}

// remedies complete the errors of the plugin library, which have no remedies.
var remedies = map[uint]string{
	wire.CodeIncompatibleVersion: "set cniVersion in the network configuration to one of " +
		"0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0",
	wire.CodeEnvironment:   "the container runtime has to set the CNI_* variables",
	wire.CodeDecoding:      "the network configuration on standard input has to be one JSON object",
	wire.CodeNetworkConfig: "set name in the network configuration: letters, digits, '.', '_' and '-'",
}

// call asks the agent and passes on what it answers.
func call(path string, args *skel.CmdArgs) error {
	var conf struct {
		Socket string `json:"socket"`
	}
	if err := json.Unmarshal(args.StdinData, &conf); err != nil {
		return types.NewError(wire.CodeDecoding, "network configuration: "+err.Error(),
			`"socket" is the path of the agent's CNI socket, a text`)
	}
	if conf.Socket == "" {
		conf.Socket = wire.DefaultSocket
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	answer, err := wire.Call(ctx, conf.Socket, path, wire.Request{
		ContainerID: args.ContainerID,
		Netns:       args.Netns,
		IfName:      args.IfName,
		Args:        args.Args,
		Path:        args.Path,
		Config:      args.StdinData,
	})
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(answer); err != nil {
		return types.NewError(wire.CodeIO, "print the result", err.Error())
	}
	return nil
}
