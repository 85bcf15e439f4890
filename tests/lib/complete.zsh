# tests/lib/complete.zsh FOLDER LINE - all that zsh offers for the last word of LINE, in a terminal of its own, with the
# completions of FOLDER.
zmodload zsh/zpty
out=$(mktemp)
zpty shell "zsh -f -i"
zpty -w shell "PROMPT= RPROMPT= FOLDER=${(q)1} OUT=$out"
zpty -w shell 'fpath=($FOLDER $fpath); autoload -Uz compinit; compinit -u -D
zstyle ":completion:*" completer _all_matches _complete; zstyle ":completion:*" insert yes
zstyle ":completion:*" old-matches false
said() { print -r -- "$BUFFER" >$OUT; BUFFER=; zle accept-line; }
zle -N said; bindkey "^X" said; bindkey "^I" complete-word'
zpty -w -n shell "$2"$'\t\x18'
for try in {1..500}; do [[ -s $out ]] && break; sleep 0.1; done
zpty -d shell
print -r -- "${"$(<$out)"#"${2% *} "}"
rm -f $out
