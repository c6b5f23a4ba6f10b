package flow

//go:generate go run ./reference ../../../docs/openflow-fields.md
