package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/httpapi"
)

type queuePushCmd struct {
	Set    queuePushSetCmd    `cmd:"" help:"Push a queue's records to a URL, or change the settings of the push."`
	Show   queuePushShowCmd   `cmd:"" help:"Show the URL that a queue is pushed to."`
	Resume queuePushResumeCmd `cmd:"" help:"Push again after the receiver answered 410 (Gone)."`
	Delete queuePushDeleteCmd `cmd:"" help:"Stop the push, and forget the URL."`
}

// Help tells what a push is.
func (queuePushCmd) Help() string {
	return `A queue that is pushed needs no worker: the queue's owner sends each record as a POST to a URL, and the response
decides. 2xx acknowledges the record; 410 stops the push; after any other response the record is sent again, after the
queue's backoff, until its attempts are used up. A queue with the default settings gets others when its push begins:
300 attempts with a backoff of 1s..10m, which takes more than a day. While there is no connection, no attempts are used
up. Requests are signed as Standard Webhooks defines. seb serve --push-allow names the private networks that requests
may reach.`
}

// pushText says how a queue is pushed.
func pushText(p seb.PushInfo) string {
	headers := "none"
	if len(p.Headers) > 0 {
		headers = strings.Join(p.Headers, ", ")
	}
	s := fmt.Sprintf("in flight at most: %d; timeout: %v; headers: %s; secrets: %d", p.MaxInFlight, p.Timeout, headers, p.Secrets)
	return strings.Join(append([]string{s}, pushTroubles(p)...), "; ")
}

// pushTroubles returns the reasons why a push delivers nothing, or nothing if the push delivers.
func pushTroubles(p seb.PushInfo) (troubles []string) {
	if p.Stopped != "" {
		troubles = append(troubles, "stopped: "+oneLine(p.Stopped))
	}
	if p.Blocked != "" {
		troubles = append(troubles, "blocked: "+oneLine(p.Blocked))
	}
	if p.Failing != "" && p.Blocked == "" {
		troubles = append(troubles, fmt.Sprintf("failing since %s: %s", p.FailingSince.UTC().Format(time.RFC3339), oneLine(p.Failing)))
	}
	return troubles
}

// queuePushSetCmd reads its own flags from no variable: a variable that is meant for one queue could change
// another. It reads secrets from files, since other users of the machine can see a command line.
type queuePushSetCmd struct {
	queueFlags
	URL         string         `arg:"" optional:"" help:"URL to send the records to, http:// or https:// (default: unchanged)."`
	SecretFile  string         `env:"-" type:"existingfile" placeholder:"FILE" help:"Sign requests with the secrets in FILE, separated by white space: whsec_ and 24 to 64 bytes in base64 (default: unchanged; for a new target the broker makes a secret, which is shown)."`
	HeaderFile  string         `env:"-" type:"existingfile" placeholder:"FILE" help:"Send the headers in FILE, one per line, such as Authorization: Bearer 123; they replace the previous ones (default: unchanged; none for a new target)."`
	MaxInFlight *int           `env:"-" placeholder:"N" help:"Most requests at a time, 1 to 1024 (default: unchanged; 64 for a new target)."`
	Timeout     *time.Duration `env:"-" placeholder:"DURATION" help:"How long a request may take, 1s to 5m (default: unchanged; 30s for a new target)."`
}

// Help shows examples.
func (queuePushSetCmd) Help() string {
	return `Examples:

    seb queue push set orders mail https://example.com/hooks
    seb queue push set orders mail https://example.com/hooks --header-file auth.txt --output json | jq -r .secret
    seb queue push set orders mail --max-in-flight 8 --timeout 5s

What is not named stays as it is. The push begins at once, and a stopped push starts again. If the attempts and the
backoff of the queue are the defaults of queues, the first URL of the queue changes them to 300 attempts and 1s..10m;
` + "`seb queue update`" + ` changes them again.

If the broker makes the secret, the receiver does not know it yet, and may refuse the first requests: pause the queue
before, or make a secret yourself (--secret-file). To change the secret, first set a file with the old and the new
secret; once the receiver knows the new secret, set a file with the new secret alone.`
}

// Run sets the target, and shows the secret if the broker made one.
func (c *queuePushSetCmd) Run(ctx context.Context, std streams) error {
	u, err := c.update()
	if err != nil {
		return err
	}
	queue, err := c.queue()
	if err != nil {
		return err
	}
	p, secret, _, err := queue.SetPush(ctx, u)
	if err != nil {
		return c.failed("push", err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.PushJSON(p, secret))
	}
	out := newPrinter(std.out)
	out.printf("queue %s of %s is pushed to %s; %s\n", c.Queue, c.Topic, p.URL, pushText(p))
	if secret != "" {
		out.printf("secret: %s\n", secret)
		note(std.err, "the receiver verifies requests with the secret; it is not shown again\n")
	}
	return out.err
}

// update returns the settings to change.
func (c *queuePushSetCmd) update() (u seb.PushUpdate, _ error) {
	u.MaxInFlight, u.Timeout = c.MaxInFlight, c.Timeout
	if c.URL != "" {
		u.URL = &c.URL
	}
	if c.SecretFile != "" {
		text, err := os.ReadFile(c.SecretFile)
		if err != nil {
			return u, fmt.Errorf("read the secret: %w", err)
		}
		secrets := strings.Fields(string(text))
		if len(secrets) == 0 {
			return u, usage(fmt.Errorf("--secret-file: %s is empty", c.SecretFile))
		}
		u.Secret = new(strings.Join(secrets, " "))
	}
	if c.HeaderFile != "" {
		text, err := os.ReadFile(c.HeaderFile)
		if err != nil {
			return u, fmt.Errorf("read the headers: %w", err)
		}
		if u.Headers, err = parseHeaderLines(string(text)); err != nil {
			return u, usage(fmt.Errorf("--header-file: %s: %w", c.HeaderFile, err))
		}
	}
	if u.URL == nil && u.Secret == nil && u.Headers == nil && u.MaxInFlight == nil && u.Timeout == nil {
		return u, usageError{hinted(errors.New("nothing to change"), "give a URL or a flag; to start pushes again after the receiver answered 410 (Gone), run `seb queue push resume`")}
	}
	return u, nil
}

// parseHeaderLines parses one header per line. Its errors don't quote headers, which may be secret.
func parseHeaderLines(text string) (map[string]string, error) {
	headers, n := map[string]string{}, 0
	for line := range strings.Lines(text) {
		n++
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, value, found := strings.Cut(line, ":")
		if name = strings.TrimSpace(name); !found || name == "" {
			return nil, fmt.Errorf("line %d is not a header; write it as Authorization: Bearer 123", n)
		}
		if _, twice := headers[name]; twice {
			return nil, fmt.Errorf("line %d repeats a header", n)
		}
		headers[name] = strings.TrimSpace(value)
	}
	return headers, nil
}

type queuePushShowCmd struct{ queueFlags }

// Help shows examples.
func (queuePushShowCmd) Help() string {
	return `Examples:

    seb queue push show orders mail
    seb queue push show orders mail --output json | jq -r .stopped

Headers are shown by name only, secrets as a count.`
}

// Run prints where the records are sent to.
func (c *queuePushShowCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	p, err := queue.Push(ctx)
	if err != nil {
		return c.failed("show the push of", err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.PushJSON(p, ""))
	}
	_, err = fmt.Fprintf(std.out, "url: %s\n%s\n", p.URL, strings.ReplaceAll(pushText(p), "; ", "\n"))
	return err
}

type queuePushResumeCmd struct{ queueFlags }

// Help shows examples.
func (queuePushResumeCmd) Help() string {
	return `Examples:

    seb queue push resume orders mail`
}

// Run resumes the push.
func (c *queuePushResumeCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	p, err := queue.ResumePush(ctx)
	if err != nil {
		return c.failed("resume the push of", err)
	}
	if c.json() {
		return printJSON(std.out, httpapi.PushJSON(p, ""))
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s is pushed to %s\n", c.Queue, c.Topic, p.URL)
	return err
}

type queuePushDeleteCmd struct{ queueFlags }

// Help shows examples.
func (queuePushDeleteCmd) Help() string {
	return `Examples:

    seb queue push delete orders mail

The push ends at once, without asking; requests under way are finished. The records wait for workers.`
}

// Run deletes the target.
func (c *queuePushDeleteCmd) Run(ctx context.Context, std streams) error {
	queue, err := c.queue()
	if err != nil {
		return err
	}
	if err := queue.RemovePush(ctx); err != nil {
		return c.failed("end the push of", err)
	}
	if c.json() {
		return printJSON(std.out, map[string]any{"topic": c.Topic, "name": c.Queue, "pushed": false})
	}
	_, err = fmt.Fprintf(std.out, "queue %s of %s is not pushed\n", c.Queue, c.Topic)
	return err
}
