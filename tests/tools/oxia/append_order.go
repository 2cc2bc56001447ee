//go:build ignore

package server

import "sync"

// appendOrder keeps entries in the order of their offsets. Oxia 0.14.0, the newest release that can be built from
// published modules, takes an entry's offset under a lock and appends the entry outside of it, so that two clients
// that write at once leave it refusing every write. Its later releases hold the lock for both, and so does
// scripts/setup-tools, which puts this file beside Oxia's own.
var appendOrder sync.Mutex
