package main

import (
	"fmt"
	"io"
	"net"

	"github.com/simple-event-broker/seb"
	"github.com/simple-event-broker/seb/price"
)

// banner tells a person at a terminal where the broker is and what to try.
func (c *serveCmd) banner(w io.Writer, address net.Addr, kind storeKind, budgeted bool, prices *price.List, keys bool, status seb.Status) error {
	url := c.scheme() + "://" + reachable(address)
	batch, cost := c.Batch, costOf(c.Batch, c.linger(), prices)
	switch {
	case budgeted:
		batch = fmt.Sprintf("timed: a commit %v after its first record if the budget allows it, else up to %v after it, or at %v", c.budgetLinger(), c.MaxLinger, c.CommitBytes)
		cost = budgetCost(c.budget(kind, prices), prices)
	case batch == batchTimed:
		batch = fmt.Sprintf("timed: a commit %v after its first record, or at %v", c.linger(), c.CommitBytes)
	}
	access, show := "anyone on this machine: there are no API keys yet (seb key create)", ""
	switch {
	case keys:
		access, show = "API keys", `-H "Authorization: Bearer $SEB_API_KEY" `
	case c.Insecure:
		access = "anyone who reaches it: --insecure, and there are no API keys"
	}
	remark := ""
	if c.on() {
		remark = "\n  (curl needs --cacert FILE, and seb --ca FILE, unless an authority that this system trusts signed the certificate)"
	}
	log := "new: the store holds no commits yet"
	if status.Applied > 0 {
		log = fmt.Sprintf("continues after commit %d", status.Applied)
	}
	warning := status.State.Warning()
	if warning != "" {
		warning = "state  " + warning + "\n"
	}
	_, err := fmt.Fprintf(w, `Seb is ready at %[1]s

Try:
  curl %[7]s-d 'hello' %[1]s/v1/topics/greetings/records
  curl %[7]s%[1]s/v1/topics/greetings/records
  curl %[7]s%[1]s/v1/topics/greetings%[10]s

store  %[2]s (%[3]v)
log    %[9]s
access %[6]s
batch  %[4]s
cost   %[5]s
%[8]s
`, url, c.Store, kind, batch, cost, access, show, warning, log, remark)
	return err
}

// reachable returns address with a host that a client on this machine can use.
func reachable(address net.Addr) string {
	tcp, ok := address.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return address.String()
	}
	return net.JoinHostPort("localhost", fmt.Sprint(tcp.Port))
}
