package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// crowdWorkers is how many connections a crowd works on at once.
const crowdWorkers = 64

// When the clients of a crowd read their answers. Each answer must be a success, and hold a record if it is
// read at the end.
const (
	readNever  = "never"
	readAtOnce = "at-once"
	readInEnd  = "in-the-end"
)

// crowdMain is a crowd of clients in a process of its own:
//
//	seb-crowd ADDRESS COUNT TEXT WHEN
//
// opens that many connections and sends the text on each. When they are complete it
// prints "ready", and keeps them until its standard input ends. WHEN tells when
// answers are read.
func crowdMain() {
	if err := runCrowd(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "seb-crowd:", err)
		os.Exit(exitFailure)
	}
}

func runCrowd(args []string) error {
	if len(args) != 4 {
		return errors.New("usage: seb-crowd ADDRESS COUNT TEXT WHEN")
	}
	address, text, when := args[0], args[2], args[3]
	count, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	conns := make([]net.Conn, count)
	err = eachOf(conns, func(c *net.Conn, in *bufio.Reader) (err error) {
		if *c, err = joinCrowd(address, text); err != nil || when != readAtOnce {
			return err
		}
		return readSuccess(*c, in, "")
	})
	if err != nil {
		return err
	}
	fmt.Println("ready")
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return eachOf(conns, func(c *net.Conn, in *bufio.Reader) error {
		var err error
		if when == readInEnd {
			err = readSuccess(*c, in, `"value":`)
		}
		// Close with a reset: tens of thousands of ports in TIME_WAIT would be missing in the next test.
		return errors.Join(err, (*c).(*net.TCPConn).SetLinger(0), (*c).Close())
	})
}

// eachOf calls do for each of conns, crowdWorkers at a time, until one fails.
func eachOf(conns []net.Conn, do func(c *net.Conn, in *bufio.Reader) error) error {
	var wg sync.WaitGroup
	failed := make([]error, crowdWorkers)
	for w := range crowdWorkers {
		wg.Go(func() {
			in := bufio.NewReader(nil)
			for i := w; i < len(conns) && failed[w] == nil; i += crowdWorkers {
				failed[w] = do(&conns[i], in)
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

func joinCrowd(address, text string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(context.Background(), "tcp", address) // the process ends with the test
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(c, text)
	return c, err
}

func readSuccess(c net.Conn, in *bufio.Reader, want string) error {
	in.Reset(c)
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	body, err := io.ReadAll(res.Body)
	if err == nil && !strings.Contains(string(body), want) {
		err = fmt.Errorf("an answer without %s: %s", want, body)
	}
	return err
}

// crowd is a process that runs crowdMain and is ready.
type crowd struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	stderr *output
	done   chan struct{} // closed when it has ended
}

// gatherCrowd starts a crowd, and returns once it is complete.
func gatherCrowd(t *testing.T, broker *process, count int, text, when string) *crowd {
	t.Helper()
	c := &crowd{
		cmd: exec.CommandContext(context.WithoutCancel(t.Context()), "seb-crowd",
			strings.TrimPrefix(broker.url, "http://"), strconv.Itoa(count), text, when),
		stderr: newOutput(),
		done:   make(chan struct{}),
	}
	stdout := newOutput()
	c.cmd.Stdout, c.cmd.Stderr = stdout, c.stderr
	in, err := c.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.stdin = in
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		_ = c.cmd.Wait() // ProcessState has the result
	}()
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill() // it may have ended
		<-c.done
	})
	if _, ok := stdout.lineAfter("ready", c.done); !ok {
		t.Fatalf("the crowd is not complete: %v\n%s", c.cmd.ProcessState, c.stderr)
	}
	return c
}

// leave closes the crowd's input: the crowd then reads the answers that it has not read, and hangs up.
func (c *crowd) leave(t *testing.T) {
	t.Helper()
	if err := c.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	<-c.done
	if code := c.cmd.ProcessState.ExitCode(); code != exitOK {
		t.Fatalf("the crowd ended with %d: %s", code, c.stderr)
	}
}
