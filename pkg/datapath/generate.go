package datapath

//go:generate go run ./pipelinedoc ../../docs/pipeline.md
