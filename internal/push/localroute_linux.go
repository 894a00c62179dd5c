package push

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"syscall"
)

// routedHere reports whether this machine itself answers at an address, whichever interfaces have it: a local
// route, or a network that is assigned to the loopback interface, makes all addresses of a network this
// machine's own. The kernel tells the type of its route to the address (see rtnetlink(7)). a is an address
// without a zone, and not an IPv4-mapped one.
//
// Types other than local and anycast lead to other machines, or nowhere: TCP makes no connection to a broadcast
// address. An error says that the kernel did not tell, or that it has no route to the address. The kernel looks
// up the route before it returns from the request, so routedHere never waits for the answer.
func routedHere(a netip.Addr) (bool, error) {
	s, err := syscall.Socket(syscall.AF_NETLINK, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, syscall.NETLINK_ROUTE)
	if err != nil {
		return false, os.NewSyscallError("socket", err)
	}
	defer func() { _ = syscall.Close(s) }() // it has its answer, or has failed
	if err := syscall.Sendto(s, routeRequest(a), 0, &syscall.SockaddrNetlink{Family: syscall.AF_NETLINK}); err != nil {
		return false, os.NewSyscallError("sendto", err)
	}
	b := make([]byte, os.Getpagesize())
	n, _, err := syscall.Recvfrom(s, b, syscall.MSG_DONTWAIT)
	if err != nil {
		return false, os.NewSyscallError("recvfrom", err)
	}
	kind, err := routeType(b[:n])
	return kind == syscall.RTN_LOCAL || kind == syscall.RTN_ANYCAST, err
}

// routeRequest returns a message that asks for the route to an address: struct nlmsghdr, struct rtmsg, and one
// struct rtattr with the address.
func routeRequest(a netip.Addr) []byte {
	family := byte(syscall.AF_INET6)
	if a.Is4() {
		family = syscall.AF_INET
	}
	size := syscall.NLMSG_HDRLEN + syscall.SizeofRtMsg + syscall.SizeofRtAttr + a.BitLen()/8
	host := binary.NativeEndian
	b := host.AppendUint32(nil, uint32(size))
	b = host.AppendUint16(b, syscall.RTM_GETROUTE)
	b = host.AppendUint16(b, syscall.NLM_F_REQUEST)
	b = append(b, make([]byte, 8)...) // sequence number, sender
	b = append(b, family, byte(a.BitLen()))
	b = append(b, make([]byte, syscall.SizeofRtMsg-2)...)
	b = host.AppendUint16(b, uint16(syscall.SizeofRtAttr+a.BitLen()/8))
	b = host.AppendUint16(b, syscall.RTA_DST)
	return slices.Concat(b, a.AsSlice())
}

// routeType returns the type of the route in the kernel's answer. The type is byte 7 of struct rtmsg.
func routeType(answer []byte) (byte, error) {
	messages, err := syscall.ParseNetlinkMessage(answer)
	if err != nil {
		return 0, fmt.Errorf("parse the kernel's answer: %w", err)
	}
	for _, m := range messages {
		switch {
		case m.Header.Type == syscall.RTM_NEWROUTE && len(m.Data) >= syscall.SizeofRtMsg:
			return m.Data[7], nil
		case m.Header.Type == syscall.NLMSG_ERROR && len(m.Data) >= 4:
			return 0, fmt.Errorf("look up the route: %w", syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))) // struct nlmsgerr
		}
	}
	return 0, errors.New("the kernel's answer has no route")
}
