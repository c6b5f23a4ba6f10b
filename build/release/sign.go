package main

import (
	"crypto/rand"
	"crypto/sha512"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
)

// signer reads a private key of OpenSSH of type Ed25519, as `ssh-keygen -t ed25519` makes it.
func signer(file string) (ssh.Signer, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the key: %w", err)
	}
	s, err := ssh.ParsePrivateKey(text)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("key %s has a passphrase: give a copy without one, `ssh-keygen -p -N '' -f COPY`", file)
	case err != nil:
		return nil, fmt.Errorf("key %s: %w; `ssh-keygen -t ed25519` makes one", file, err)
	case s.PublicKey().Type() != ssh.KeyAlgoED25519:
		return nil, fmt.Errorf("key %s is of type %s: want %s; `ssh-keygen -t ed25519` makes one", file, s.PublicKey().Type(),
			ssh.KeyAlgoED25519)
	}
	return s, nil
}

// signature returns the signature of a file that `ssh-keygen -Y verify -n file` checks: PROTOCOL.sshsig of OpenSSH.
func signature(key ssh.Signer, data []byte) ([]byte, error) {
	const magic, namespace, hash = "SSHSIG", "file", "sha512"
	sum := sha512.Sum512(data)
	signed, err := key.Sign(rand.Reader, append([]byte(magic), ssh.Marshal(struct {
		Namespace, Reserved, Hash string
		Sum                       []byte
	}{namespace, "", hash, sum[:]})...))
	if err != nil {
		return nil, err
	}
	blob := append([]byte(magic), ssh.Marshal(struct {
		Version                   uint32
		Key                       []byte
		Namespace, Reserved, Hash string
		Signature                 []byte
	}{1, key.PublicKey().Marshal(), namespace, "", hash, ssh.Marshal(signed)})...)
	return pem.EncodeToMemory(&pem.Block{Type: "SSH SIGNATURE", Bytes: blob}), nil
}

// public returns the line for a file of allowed signers.
func public(key ssh.Signer) string {
	return "tombolo namespaces=\"file\" " + strings.TrimSpace(string(ssh.MarshalAuthorizedKey(key.PublicKey())))
}
