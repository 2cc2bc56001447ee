// Serves franz-go's schema registry on a loopback port, which it prints. POST /reset empties it.
package main

import (
	"fmt"
	"net/http"

	"github.com/twmb/franz-go/pkg/sr/srfake"
)

func main() {
	registry := srfake.New()
	registry.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/reset" {
			return false
		}
		registry.Reset()
		w.WriteHeader(http.StatusNoContent)
		return true
	})
	fmt.Println(registry.URL())
	select {}
}
