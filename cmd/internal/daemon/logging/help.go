package logging

import "github.com/alecthomas/kong"

// Help has the help texts that are too long for the tags of the flags. A tag refers to a text by its key in this map.
var Help = kong.Vars{
	"logging_log_rate": "" +
		"Most log lines per second with the same message; more are counted only. 0: no limit, so clients can " +
		"fill the disk.",
}
