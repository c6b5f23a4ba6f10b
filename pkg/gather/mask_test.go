package gather

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

const (
	jwt = "eyJhbGciOiJSUzI1NiIsImtpZCI6ImNhbmFyeSJ9.eyJpc3MiOiJrdWJlcm5ldGVzIiwic3ViIjoiY2FuYXJ5In0" +
		".c2lnbmF0dXJlLWNhbmFyeQ"
	key  = "yAnz5TF+lXXJte14tji3zlMNq+hd2rYUIgJBgB3fBmk="
	body = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgCANARYcanaryCANA\n" +
		"RYcanaryCANARYcanaryCANARYcanaryhRANCAAQCANARYcanaryCANARYcanary0\n"
	pem = "-----BEGIN PRIVATE KEY-----\n" + body + "-----END PRIVATE KEY-----\n"
)

func b64(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }

func gz(text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return b.String()
}

// TestMask masks each shape of secrets and leaves the text around it.
func TestMask(t *testing.T) {
	for _, row := range []struct{ name, text, want string }{
		{"token", "sent " + jwt + " to it", "sent [masked] to it"},
		{"token without a signature", "sent eyJhbGciOiJub25lIn0.eyJzdWIiOiJhIn0. to it", "sent [masked] to it"},
		{"key of WireGuard", "peer " + key + " is up", "peer [masked] is up"},
		{"key after a path", "peer/" + key + " is up", "[masked] is up"},
		{"key for URLs, without padding", "peer " + strings.TrimRight(strings.ReplaceAll(key, "+", "-"), "=") + " is up",
			"peer [masked] is up"},
		{"PEM", "a\n" + pem + "b\n", "a\n[masked]\nb\n"},
		{"PEM on one line", "a " + strings.ReplaceAll(pem, "\n", `\n`) + " b", `a [masked]\n b`},
		{"PEM without its end", "a\n-----BEGIN PRIVATE KEY-----\n" + body, "a\n[masked]"},
		{"PEM without its beginning", "a\n" + body + "-----END PRIVATE KEY-----\nb", "a\n[masked]\nb"},
		{"PEM without both", "a\n" + body + "b c", "a\n[masked]\nb c"},
		{"password in a URL", "from https://joe:hunter2@example.org/x", "from https://joe:[masked]@example.org/x"},
		{"password with an @ in a URL", "from https://joe:hun@ter2@example.org/x",
			"from https://joe:[masked]@example.org/x"},
		{"query of a URL", "GET /x?a=1&access_token=hunter2&b=2", "GET /x?a=1&access_token=[masked]&b=2"},
		{"bearer", "Authorization: Bearer hunter2hunter2", "Authorization: [masked]"},
		{"bearer in a text", "the header bearer hunter2hunter2 was refused", "the header bearer [masked] was refused"},
		{"cookie", "Cookie: session=hunter2; a=b\nnext", "Cookie: [masked]\nnext"},
		{"key and value", "password=hunter2, next", "password=[masked] next"},
		{"key and value of a log", `msg=x token="hun ter2" next=y`, `msg=x token="[masked]" next=y`},
		{"YAML", "user:\n  client-key-data: aHVudGVyMg==\n  name: a", "user:\n  client-key-data: [masked]\n  name: a"},
		{"JSON", `{"password":"hun ter2","name":"a"}`, `{"password":"[masked]","name":"a"}`},
		{"JSON with a number", `{"password":123456,"name":"a"}`, `{"password":"[masked]","name":"a"}`},
		{"JSON in JSON", `{"x":"{\"dbPassword\":\"hunter2\"}"}`, `{"x":"{\"dbPassword\":\"[masked]\"}"}`},
		{"YAML with a short value", "user:\n  password: a1\n  name: a", "user:\n  password: [masked]\n  name: a"},
		{"value on the next line", "password:\n  \"hun ter2\"\nname: a", "password:\n  \"[masked]\"\nname: a"},
		{"name in the second object of a line", `[{"a":1},{"password":"hunter2"},{"b":1}]`,
			`[{"a":1},{"password":"[masked]"},{"b":1}]`},
		{"argument", "run --db-password hunter2 --next", "run --db-password [masked] --next"},
		{"arguments as a list", `["--db-password", "hunter2", "--next"]`, `["--db-password", "[masked]", "--next"]`},
		{"JSON with a quotation mark in it", `{"password":"a\"hunter2","b":1}`, `{"password":"[masked]","b":1}`},
		{"JSON in JSON with a quotation mark in it", `{"x":"{\"password\":\"a\\\"hunter2\",\"b\":1}"}`,
			`{"x":"{\"password\":\"[masked]\",\"b\":1}"}`},
		{"value with other signs", `password=a\b,c;d(e next`, `password=[masked] next`},
		{"quoted value that is cut off", "token=\"hunter2\nnext", "token=\"[masked]\"\nnext"},
		{"PEM in a log with times", "T1.5Z " + strings.ReplaceAll(pem, "\n", "\nT1.5Z ") + "next",
			"T1.5Z [masked]\nT1.5Z next"},
		{"PEM in a log with times, without its beginning", "T1.5Z " + strings.Split(body, "\n")[1] + "\nT1.5Z next",
			"T1.5Z [masked]\nT1.5Z next"},
		{"UAPI", "private_key=c8f09d1c\nlisten_port=1", "private_key=[masked]\nlisten_port=1"},
		{"bootstrap token", "token abcdef.0123456789abcdef", "token [masked]"},
		{"base64 of a token", "x " + b64(jwt) + " y", "x [masked] y"},
		{"base64 of base64 of a URL", "x " + b64(b64("https://joe:hunter2@example.org/x")) + " y", "x [masked] y"},
		{"base64 in a path", "/var/lib/" + b64("password=hunter2 and more") + " y", "[masked] y"},
		{"base64 of gzip", "x " + b64(gz("no secret at all")) + " y", "x [masked] y"},
		{"base64 in lines", "x\n" + b64(strings.Repeat("a", 57))[:76] + "\n" + b64("password=hunter2") + "\ny z",
			"x\n[masked]\ny z"},

		{"digest", "sha256:6d1ef012b5674ad8a127ecfa9b5e6f5178d171b90ee462846974177fd9bdd39f", ""},
		{"flow", `{"cookie":281474976710656,"text":"cookie=0x1000, priority=200,ip actions=goto_table:Conntrack"}`, ""},
		{"path and names", "/var/run/tombolo/debug.sock of tombolo-policy-controller-5d8f9c7b6-x7k2p: no answer", ""},
		{"metric", `tombolo_multicluster_way_up{cluster="west",to="192.168.78.101"} 1`, ""},
		{"name of a Secret", `{"secretName":"tls","automountServiceAccountToken":false}`, ""},
		{"Kubernetes' labels", "kubernetes.io/metadata.name=default,app.kubernetes.io/managed-by=Helm", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			want := row.want
			if want == "" {
				want = row.text
			}
			if have := MaskText(row.text); have != want {
				t.Errorf("have %q\nwant %q", have, want)
			}
		})
	}
}

// FuzzMask puts a secret between two texts. The secret is never in the result, and masking once more changes nothing
// that matters: the result has no secret either.
func FuzzMask(f *testing.F) {
	for _, around := range []string{"", " ", "\n", `"`, `\"`, "=", "/", "a/b/", "password=", "-----BEGIN X-----\n",
		"eyJ", "://u:", "\x00", "é"} {
		f.Add(around, around)
	}
	f.Fuzz(func(t *testing.T, before, after string) {
		for _, secret := range []string{jwt, pem, "https://joe:hunter2canary@example.org/"} {
			for _, form := range []string{secret, strings.ReplaceAll(secret, "\n", `\n`), b64(secret)} {
				have := MaskText(before + " " + form + " " + after)
				if strings.Contains(have, form) || strings.Contains(have, "hunter2canary") || strings.Contains(have,
					strings.Split(body, "\n")[0]) {
					t.Errorf("%q between %q and %q is still in %q", form, before, after, have)
				}
			}
		}
		// An answer stays an answer.
		answer, err := json.Marshal(map[string]string{"name": before, "token": after})
		if err != nil {
			t.Fatal(err)
		}
		if have := maskJSON(answer); !json.Valid(have) {
			t.Errorf("%s is no JSON any more: %s", answer, have)
		}
	})
}

// BenchmarkMask masks a megabyte of flows on one line, as agents answer.
func BenchmarkMask(b *testing.B) {
	flow := `{"table":"Service","priority":200,"match":"tcp,nw_dst=10.96.0.10","actions":"group:17",` +
		`"cookie":281474976710656,"owner":"Service kube-system/kube-dns"},`
	text := []byte(`{"flows":[` + strings.Repeat(flow, 1<<20/len(flow)) + "{}]}\n")
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Mask(text)
	}
}
