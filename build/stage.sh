# Sourced by the scripts of this folder and by the Makefile: runs one stage of a build so that
# people see that it goes on.
#
#   stage NAME COMMAND...
#
# On a terminal one line shows the time, the name, and what has been counted so far; elsewhere
# only its last state is printed. Counted are the modules that Go downloads and the packages that
# `go build -v` compiles. When the command fails, everything it has printed follows. The time
# begins with TOMBOLO_START (seconds since 1970), or with the first stage.
: "${TOMBOLO_START:=$EPOCHSECONDS}"
export TOMBOLO_START

_stage_line() { # NAME LOG: the line, without its end
	local tenths modules packages counts=""
	tenths=$(((${EPOCHREALTIME/[.,]/} - TOMBOLO_START * 1000000) / 100000))
	# Packages are paths alone on a line, such as k8s.io/api/core/v1 or fmt. FAIL is no package.
	modules=$(grep -c '^go: downloading ' "$2") || true
	packages=$(grep -cE '^[a-z0-9][A-Za-z0-9_.~/-]*$' "$2") || true
	[ "$modules" = 0 ] || counts+=", modules downloaded $modules"
	[ "$packages" = 0 ] || counts+=", packages compiled $packages"
	printf '%5d.%ds  %s%s' $((tenths / 10)) $((tenths % 10)) "$1" "${counts/#,/:}"
}

_stage_report() { # NAME LOG PARENT: repaints the line until it is killed
	while kill -0 "$3" 2>/dev/null; do
		printf '\r%s\e[K' "$(_stage_line "$1" "$2")"
		sleep 0.3
	done
}

stage() {
	local name=$1 log reporter="" status=0
	shift
	log=$(mktemp)
	if [ -t 1 ]; then
		_stage_report "$name" "$log" $BASHPID &
		reporter=$!
	fi
	"$@" >"$log" 2>&1 || status=$?
	if [ -n "$reporter" ]; then
		kill "$reporter" 2>/dev/null || true
		wait "$reporter" 2>/dev/null || true
		printf '\r\e[K'
	fi
	if [ "$status" = 0 ]; then
		printf '%s\n' "$(_stage_line "$name" "$log")"
	else
		printf '%s\n' "$(_stage_line "$name: FAILED" "$log")"
		cat "$log" >&2
	fi
	rm -f "$log"
	return "$status"
}
