package multicluster

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/tombolo-net/tombolo/deploy"
	"github.com/tombolo-net/tombolo/pkg/cli"
	"github.com/tombolo-net/tombolo/pkg/multicluster/setup"
	"github.com/tombolo-net/tombolo/pkg/version"
)

// needs returns an error for each missing value. Its arguments are pairs of a value and the text of the error. Such a
// text has the documented words, followed by the flag.
func needs(pairs ...string) error {
	var missing []error
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i] == "" {
			missing = append(missing, errors.New(pairs[i+1]))
		}
	}
	return errors.Join(missing...)
}

const (
	needNamespace  = "Namespace must be specified: -n NAMESPACE"
	needClusterSet = "ClusterSet must be provided: --clusterset NAME"
	needClusterID  = "ClusterID must be provided: --clusterid ID"
)

// orContext ends the description of a Namespace that a command needs.
const orContext = "the context's when empty (one of them is required)"

// usualTag ends the description of --image-tag: version.Tag.
const usualTag = "; without it the version of a release, otherwise dev"

func namespaceFlag(cmd *cobra.Command, to *string, value, of string) {
	cmd.Flags().StringVarP(to, "namespace", "n", value, "Namespace of "+of)
}

// deploy installs the controller from the manifest that this program has, or from a file.
func (c *cluster) deploy(role string) *cobra.Command {
	var namespace, asked, file, registry, tag string
	var withOther bool
	cmd := &cobra.Command{
		Use:   role + "cluster",
		Short: "Install the multi-cluster controller as " + role,
		Example: "  tombolo mc deploy " + role + "cluster -n " + map[string]string{"leader": deploy.LeaderNamespace,
			"member": deploy.MemberNamespace}[role],
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.orContext(&namespace)
			if err := needs(namespace, needNamespace); err != nil {
				return err
			}
			if file != "" && cmd.Flags().Changed("antrea-version") {
				return errors.New(
					"--antrea-version has no effect with --manifest-file, which is of one version: give one of the two")
			}
			if file != "" && registry+tag != "" {
				return errors.New(
					"--image-registry and --image-tag have no effect with --manifest-file, which names its own images: remove them, " +
						"or change the file")
			}
			manifest := deploy.Leader(namespace)
			if role == "member" {
				manifest = deploy.Member(namespace)
			}
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return err
				}
				manifest = string(text)
			} else if own := version.String(); asked != "latest" &&
				strings.TrimPrefix(asked, "v") != strings.TrimPrefix(own, "v") {
				return fmt.Errorf(
					"this program has the manifest of version %s; for version %s use its own program, or its manifest with "+
						"--manifest-file", own, asked)
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			objects, err := c.client()
			if err != nil {
				return err
			}
			if file == "" && !withOther {
				if err := k.Foreign(cmd.Context(), objects, namespace, role == "member"); err != nil {
					return err
				}
			}
			err = k.Deploy(cmd.Context(), objects, deploy.WithImages(manifest, registry, tag), namespace)
			if err != nil && file != "" {
				err = fmt.Errorf("manifest %s: %w", file, err)
			}
			if err == nil && file == "" && registry == "" {
				fmt.Fprintln(cmd.OutOrStdout(),
					"The controller's image is not pulled: Nodes have to be given it (make images). For a registry give "+
						"--image-registry and --image-tag.")
			}
			return err
		},
	}
	namespaceFlag(cmd, &namespace, "", "the controller; "+orContext)
	cmd.Flags().StringVar(&asked, "antrea-version", "latest", "version of the controller: that of this program")
	cmd.Flags().StringVar(&registry, "image-registry", "",
		"registry and path of the controller's image (as make push REGISTRY=)")
	cmd.Flags().StringVar(&tag, "image-tag", "", "tag of the controller's image"+usualTag)
	cmd.Flags().BoolVar(&withOther, "with-other-cni", false,
		"deploy in a cluster that runs Antrea, in place of its multi-cluster controller")
	cmd.Flags().StringVarP(&file, "manifest-file", "f", "", "manifest to apply instead of the one in this program")
	return cmd
}

func (c *cluster) init() *cobra.Command {
	var namespace, clusterSet, clusterID, file string
	var withToken bool
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Create a ClusterSet in the leader cluster",
		Example: "  tombolo mc init -n antrea-multicluster --clusterset my-clusterset --clusterid leader -j " +
			"join-config.yml\n" +
			"  tombolo mc init -n antrea-multicluster --clusterset my-clusterset --clusterid leader --create-token -j " +
			"join-config.yml",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.orContext(&namespace)
			if err := needs(namespace, needNamespace, clusterSet, needClusterSet, clusterID, needClusterID); err != nil {
				return err
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			save := func(token *corev1.Secret) error {
				if file == "" {
					return nil
				}
				join, err := k.LeaderJoinConfig(cmd.Context(), namespace, config.Host)
				if err != nil {
					return err
				}
				join.Secret = token
				return writeJoinConfig(cmd, file, join)
			}
			err = k.Init(cmd.Context(), namespace, clusterSet, clusterID, func() error {
				if !withToken {
					return save(nil)
				}
				return k.CreateToken(cmd.Context(), namespace, setup.DefaultToken, "", save)
			})
			if err == nil && withToken {
				fmt.Fprintf(cmd.OutOrStdout(),
					"Token %s is good for the first cluster ID that joins with it, and for no other from then on: `mc create "+
						"membertoken` makes one for each further member\n", setup.DefaultToken)
			}
			return err
		},
	}
	namespaceFlag(cmd, &namespace, "", "the ClusterSet; "+orContext)
	cmd.Flags().StringVar(&clusterSet, "clusterset", "", "name of the ClusterSet (required)")
	cmd.Flags().StringVar(&clusterID, "clusterid", "", "cluster ID of the leader (required)")
	cmd.Flags().BoolVar(&withToken, "create-token", false, "create the token "+setup.DefaultToken+
		" as well, for the first member that joins with it, and write its Secret into the join configuration")
	cmd.Flags().StringVarP(&file, "join-config-file", "j", "", "file to write what members need to join")
	cmd.Flags().StringVarP(&file, "output-file", "o", "", "the name of --join-config-file in older versions")
	_ = cmd.Flags().MarkHidden("output-file")
	return cmd
}

// writeJoinConfig writes a file that only its owner may read: it may have a token.
func writeJoinConfig(cmd *cobra.Command, file string, join *setup.JoinConfig) error {
	var b strings.Builder
	if err := join.Write(&b); err != nil {
		return err
	}
	return writeSecretly(cmd, file, b.String(), "join configuration")
}

// writeSecretly writes a file that only its owner may read. If it is not a regular file, such as /dev/stdout, it keeps
// its mode.
func writeSecretly(cmd *cobra.Command, file, text, what string) error {
	done, err := saveSecretly(cmd.OutOrStdout(), file, text)
	var path *os.PathError // it may name a file that is to take the place of the one asked for
	if errors.As(err, &path) {
		err = path.Err
	}
	if err != nil {
		return fmt.Errorf("save the %s to %s: %w; name a file that can be written", what, file, err)
	}
	if done {
		fmt.Fprintf(cmd.OutOrStdout(), "Saved the %s to %s\n", what, file)
	}
	return nil
}

// saveSecretly reports whether it wrote to something else than the standard output.
func saveSecretly(stdout io.Writer, file, text string) (elsewhere bool, _ error) {
	itself, err := os.Lstat(file)
	if errors.Is(err, os.ErrNotExist) || err == nil && itself.Mode().IsRegular() {
		return true, replace(file, text)
	}
	target, err := os.Stat(file) // a link's target
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, err
	}
	if out, is := stdout.(*os.File); is && err == nil {
		// The file is not opened again. If the standard output was redirected to a file, that would overwrite it from its
		// beginning.
		if info, err := out.Stat(); err == nil && os.SameFile(info, target) {
			_, err := out.WriteString(text)
			return false, err
		}
	}
	w, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	if target != nil && target.Mode().IsRegular() {
		if err = w.Chmod(0o600); err == nil {
			err = w.Truncate(0)
		}
	}
	if err == nil {
		_, err = w.WriteString(text)
	}
	return true, errors.Join(err, w.Close())
}

// replace makes a file that its owner alone may read, or leaves what was there.
func replace(file, text string) error {
	w, err := os.CreateTemp(filepath.Dir(file), "."+filepath.Base(file)+"-*") // with mode 0600
	if err != nil {
		return err
	}
	_, err = w.WriteString(text)
	if err = errors.Join(err, w.Close()); err == nil {
		err = os.Rename(w.Name(), file)
	}
	if err != nil {
		os.Remove(w.Name())
	}
	return err
}

func (c *cluster) join() *cobra.Command {
	var flags setup.JoinConfig
	var file string
	cmd := &cobra.Command{
		Use:   "join",
		Short: "Join this cluster to a ClusterSet",
		Example: "  tombolo mc join --clusterid east -f join-config.yml --token-secret-file east-token.yml\n" +
			"  tombolo mc join --clusterset my-clusterset --clusterid east --leader-clusterid leader --leader-namespace " +
			"antrea-multicluster --leader-apiserver https://10.0.0.1:6443 --token-secret-name east-token",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			join := &setup.JoinConfig{}
			if file != "" {
				r, err := os.Open(file)
				if err != nil {
					return err
				}
				defer r.Close()
				if join, err = setup.ReadJoinConfig(r); err != nil {
					return fmt.Errorf("read join configuration %s: %w", file, err)
				}
			}
			// The values of the file count.
			for _, v := range []struct{ to, flag *string }{
				{&join.ClusterSetID, &flags.ClusterSetID}, {&join.ClusterID, &flags.ClusterID}, {&join.Namespace, &flags.Namespace},
				{&join.LeaderClusterID, &flags.LeaderClusterID}, {&join.LeaderNamespace, &flags.LeaderNamespace},
				{&join.LeaderAPIServer, &flags.LeaderAPIServer},
				{&join.TokenSecretName, &flags.TokenSecretName}, {&join.TokenSecretFile, &flags.TokenSecretFile},
			} {
				*v.to = cmp.Or(*v.to, *v.flag)
			}
			if join.TokenSecretName == "" && join.TokenSecretFile != "" {
				r, err := os.Open(join.TokenSecretFile)
				if err != nil {
					return err
				}
				defer r.Close()
				if join.Secret, err = setup.ReadTokenSecret(r); err != nil {
					return fmt.Errorf("read token %s: %w", join.TokenSecretFile, err)
				}
			}
			join.SkipLeaderCheck = flags.SkipLeaderCheck
			if err := join.Missing(); err != nil {
				return err
			}
			if join.TokenSecretName != "" && (join.TokenSecretFile != "" || join.Secret != nil) {
				fmt.Fprintf(cmd.ErrOrStderr(), "The token is taken from Secret %s in Namespace %s: the one in a file is not used\n",
					join.TokenSecretName, join.Namespace)
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			return k.Join(cmd.Context(), join)
		},
	}
	namespaceFlag(cmd, &flags.Namespace, deploy.MemberNamespace, "the member's controller")
	cmd.Flags().StringVar(&flags.ClusterSetID, "clusterset", "", "name of the ClusterSet")
	cmd.Flags().StringVar(&flags.ClusterID, "clusterid", "", "cluster ID of this cluster")
	cmd.Flags().StringVar(&flags.LeaderClusterID, "leader-clusterid", "", "cluster ID of the leader")
	cmd.Flags().StringVar(&flags.LeaderNamespace, "leader-namespace", "",
		"Namespace of the ClusterSet in the leader cluster")
	cmd.Flags().StringVar(&flags.LeaderAPIServer, "leader-apiserver", "", "https URL of the leader's API server")
	cmd.Flags().StringVar(&flags.TokenSecretName, "token-secret-name", "", "name of the Secret with the token")
	cmd.Flags().StringVar(&flags.TokenSecretFile, "token-secret-file", "",
		"manifest of a Secret with the token, which is created")
	cmd.Flags().BoolVar(&flags.SkipLeaderCheck, "skip-leader-check", false,
		"do not ask the leader first: where only the member cluster reaches it")
	cmd.Flags().StringVarP(&file, "config-file", "f", "", "join configuration; what it says counts, not the flags")
	return cmd
}

func (c *cluster) leave() *cobra.Command {
	return c.remove("leave", "Leave a ClusterSet, in a member cluster", deploy.MemberNamespace)
}

func (c *cluster) destroy() *cobra.Command {
	return c.remove("destroy", "Delete a ClusterSet, in the leader cluster", "")
}

// remove is leave and destroy.
func (c *cluster) remove(name, short, usual string) *cobra.Command {
	var namespace, clusterSet string
	var deletion cli.Deletion
	cmd := &cobra.Command{
		Use: name, Short: short, Args: cobra.NoArgs,
		Example: "  tombolo mc " + name + " --context east -n " + cli.Or(usual, deploy.LeaderNamespace) +
			" --clusterset my-clusterset --dry-run",
		Long: short + ". The tokens, RoleBindings and ServiceAccounts of the Namespace that these commands made go with it.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.orContext(&namespace)
			if err := needs(namespace, needNamespace, clusterSet, needClusterSet); err != nil {
				return err
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			confirmed, err := deletion.Confirmed(cmd, func() ([]string, error) {
				return k.Removal(cmd.Context(), namespace, clusterSet)
			})
			if err != nil || !confirmed {
				return err
			}
			return k.Remove(cmd.Context(), namespace, clusterSet)
		},
	}
	of := "the ClusterSet"
	if usual == "" {
		of += "; " + orContext
	}
	namespaceFlag(cmd, &namespace, usual, of)
	cmd.Flags().StringVar(&clusterSet, "clusterset", "", "name of the ClusterSet (required)")
	deletion.Flags(cmd)
	return cmd
}

func (c *cluster) createToken() *cobra.Command {
	var namespace, clusterID, file string
	cmd := &cobra.Command{
		Use:   "membertoken NAME",
		Short: "Create a token for a member, in the leader cluster",
		Example: "  tombolo mc create membertoken east-token -n antrea-multicluster --cluster-id east --output-file " +
			"east-token.yml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.orContext(&namespace)
			if err := needs(strings.Join(args, ""), "token name must be specified", namespace, needNamespace, clusterID,
				"--cluster-id must be specified"); err != nil {
				return err
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			return k.CreateToken(cmd.Context(), namespace, args[0], clusterID, func(token *corev1.Secret) error {
				if file == "" {
					return nil
				}
				text, err := setup.WriteSecret(token)
				if err != nil {
					return err
				}
				return writeSecretly(cmd, file, string(text), "member token")
			})
		},
	}
	namespaceFlag(cmd, &namespace, "", "the leader's ClusterSet; "+orContext)
	cmd.Flags().StringVar(&clusterID, "cluster-id", "",
		"cluster ID of the member: the token is good for no other (required)")
	cmd.Flags().StringVarP(&file, "output-file", "o", "", "file to write the token's Secret to, for the member")
	if !c.antctl {
		cli.HideShorthands(cmd.Flags(), "output-file")
	}
	return cmd
}

func (c *cluster) deleteToken() *cobra.Command {
	var namespace string
	var deletion cli.Deletion
	cmd := &cobra.Command{
		Use:     "membertoken NAME",
		Short:   "Delete a token of a member, in the leader cluster",
		Example: "  tombolo mc delete membertoken east-token -n antrea-multicluster --dry-run",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c.orContext(&namespace)
			if err := needs(strings.Join(args, ""), "token name must be specified", namespace, needNamespace); err != nil {
				return err
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			confirmed, err := deletion.Confirmed(cmd, func() ([]string, error) {
				return k.TokenRemoval(cmd.Context(), namespace, args[0])
			})
			if err != nil || !confirmed {
				return err
			}
			return k.DeleteToken(cmd.Context(), namespace, args[0])
		},
	}
	namespaceFlag(cmd, &namespace, "", "the leader's ClusterSet; "+orContext)
	deletion.Flags(cmd)
	return cmd
}

func (c *cluster) joinConfig() *cobra.Command {
	var namespace, token string
	cmd := &cobra.Command{
		Use:   "joinconfig",
		Short: "What members need to join, from the leader cluster",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c.orContext(&namespace)
			if err := needs(namespace, needNamespace); err != nil {
				return err
			}
			k, err := c.setup(cmd)
			if err != nil {
				return err
			}
			config, err := c.config()
			if err != nil {
				return err
			}
			join, err := k.LeaderJoinConfig(cmd.Context(), namespace, config.Host)
			if err != nil {
				return err
			}
			if token != "" {
				if join.Secret, err = k.TokenOf(cmd.Context(), namespace, token); err != nil {
					return err
				}
			}
			return join.Write(cmd.OutOrStdout())
		},
	}
	namespaceFlag(cmd, &namespace, "", "the ClusterSet; "+orContext)
	cmd.Flags().StringVar(&token, "member-token", "", "token to print as well")
	return cmd
}
