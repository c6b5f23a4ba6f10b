package comments

import "testing"

func TestAbout(t *testing.T) {
	for _, row := range []struct{ name, comment, declared, want string }{
		{"verb", "Port is the UDP port.", "Port", "The UDP port."},
		{"plural", "Leaders are the clusters", "Leaders", "The clusters."},
		{"another verb", "Enable serves ClusterIPs.", "Enable", "Serves ClusterIPs."},
		{"another case", "ClusterID is the ID.", "clusterID", "The ID."},
		{"part of the sentence", "Name of the object.", "Name", "Name of the object."},
		{"another beginning", "the UDP port", "Port", "The UDP port."},
		{"longer word", "Ports are ranges.", "Port", "Ports are ranges."},
		{"name alone", "Port", "Port", "Port."},
		{"nothing", "", "Port", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			if have := About(row.comment, row.declared); have != row.want {
				t.Errorf("%q, want %q", have, row.want)
			}
		})
	}
}
