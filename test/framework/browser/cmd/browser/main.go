// Command browser gets what the tests in a browser need, or says in one line what is
// missing.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"

	"github.com/drawbridge-dev/drawbridge/test/framework/browser"
)

func main() {
	check := flag.Bool("check", false, "only say what is missing, if anything is")
	flag.Parse()
	if *check {
		if err := browser.Missing(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	if err := browser.Install(context.Background(), os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "browser:", err)
		os.Exit(1)
	}
}
