// Package shell has the commands, for every program, that print completions for a shell and the manual page.
package shell

import (
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Commands are the commands for shells that every program has: completion and man. The command-line parser kong fills
// the fields.
type Commands struct {
	Completion completionCmd `cmd:"" help:"Print the completions for a shell."`
	Man        manCmd        `cmd:"" help:"Print the manual page."`
	Complete   completeCmd   `cmd:"" hidden:""`
}

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (*completionCmd) Help() string {
	return `Prints a script that completes commands, flags and their values. With it the shell asks the
program, so it stays right after an upgrade.

Examples:

  source <(listd completion bash)                                # also in ~/.bashrc; so with rebalancer
  listd completion zsh > ~/.zsh/completions/_listd               # a directory of fpath
  listd completion fish > ~/.config/fish/completions/listd.fish`
}

// scripts maps each shell, e.g. bash, to the completion script for the shell. PROGRAM in a script stands for the name
// of the program. The script calls the program with the words up to the cursor, and the program prints what may come
// next.
var scripts = map[string]string{
	"bash": `_PROGRAM() {
	mapfile -t COMPREPLY < <("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null | cut -f1)
}
complete -o default -o bashdefault -F _PROGRAM PROGRAM
`,
	"zsh": `#compdef PROGRAM
_PROGRAM() {
	local -a found
	found=("${(@f)$("${words[1]}" complete -- "${(@)words[2,CURRENT]}" 2>/dev/null | sed 's/:/\\:/g; s/	/:/')}")
	if [[ -n "${found[1]}" ]]; then _describe PROGRAM found; else _files; fi
}
if [[ "${funcstack[1]}" == _PROGRAM ]]; then _PROGRAM "$@"; else compdef _PROGRAM PROGRAM; fi
`,
	"fish": `complete -c PROGRAM -a '(PROGRAM complete -- (commandline -opc)[2..] (commandline -ct) 2>/dev/null)'
`,
}

// Run prints the completion script for the shell that the user names.
func (c *completionCmd) Run(k *kong.Context) error {
	_, err := fmt.Fprint(k.Stdout, strings.ReplaceAll(scripts[c.Shell], "PROGRAM", k.Model.Name))
	return err
}

type completeCmd struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words behind the program's name, up to the cursor."`
}

// Run prints the possible completions of the last word on a command line, for the shell's completion script. Each line
// has a completion, a TAB and the completion's meaning. If Run prints nothing, the shell completes names of files.
func (c *completeCmd) Run(k *kong.Context) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, x := range complete(k.Model.Node, words) {
		if _, err := fmt.Fprintf(k.Stdout, "%s\t%s\n", x.word, x.help); err != nil {
			return err
		}
	}
	return nil
}

type candidate struct{ word, help string }

// complete returns the possible completions of the last of words: commands, flags, or values of a flag. The words
// before the last word name commands and flags below the command at.
func complete(at *kong.Node, words []string) (out []candidate) {
	if len(words) == 0 {
		return nil
	}
	words, last := words[:len(words)-1], words[len(words)-1]
	var value *kong.Flag // the flag whose value is the last word
	for i := 0; i < len(words); i++ {
		word := words[i]
		f := flagOf(at, word)
		switch {
		case word == "--":
			return nil
		case f != nil && !f.IsBool() && !f.IsCounter():
			behind := i + 1
			if behind < len(words) && words[behind] == "=" { // bash splits --flag=value into three words
				behind++
			}
			if behind >= len(words) {
				value = f
			}
			i = behind
		case f == nil:
			for _, child := range at.Children {
				if child.Name == word {
					at = child
					break
				}
			}
		}
	}
	name, begun, joined := strings.Cut(last, "=")
	switch {
	case value != nil:
		return enum(value.Value, "", strings.TrimPrefix(last, "="))
	case strings.HasPrefix(last, "--") && joined:
		if f := flagOf(at, name); f != nil {
			return enum(f.Value, name+"=", begun)
		}
		return nil
	case strings.HasPrefix(last, "-"):
		for n := at; n != nil; n = n.Parent {
			for _, f := range n.Flags {
				if !f.Hidden && strings.HasPrefix("--"+f.Name, last) {
					out = append(out, candidate{"--" + f.Name, firstSentence(f.Help)})
				}
			}
		}
		return out
	}
	for _, child := range at.Children {
		if !child.Hidden && strings.HasPrefix(child.Name, last) {
			out = append(out, candidate{child.Name, firstSentence(child.Help)})
		}
	}
	for i, arg := range at.Positional {
		if i == 0 && arg.Enum != "" {
			out = append(out, enum(arg, "", last)...)
		}
	}
	return out
}

// flagOf returns the flag with the name `word`, such as --help or -h, of the command at or of a command above at. The
// result is nil if no such flag exists.
func flagOf(at *kong.Node, word string) *kong.Flag {
	for n := at; n != nil; n = n.Parent {
		i := slices.IndexFunc(n.Flags, func(f *kong.Flag) bool {
			return "--"+f.Name == word || f.Short != 0 && "-"+string(f.Short) == word
		})
		if i >= 0 {
			return n.Flags[i]
		}
	}
	return nil
}

func enum(v *kong.Value, prefix, begun string) (out []candidate) {
	for _, word := range v.EnumSlice() {
		if word != "" && strings.HasPrefix(word, begun) {
			out = append(out, candidate{prefix + word, ""})
		}
	}
	return out
}

// firstSentence returns the first sentence of a help text, without its period.
func firstSentence(text string) string {
	text, _, _ = strings.Cut(text, ". ")
	return strings.TrimSuffix(strings.ReplaceAll(text, "\t", " "), ".")
}
