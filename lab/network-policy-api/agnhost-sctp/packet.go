package main

import (
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
)

const protocolNumber = 132

// Chunk types of RFC 9260 that set up an association or refuse it.
const (
	chunkInit    = 1
	chunkInitAck = 2
	chunkAbort   = 6
)

const (
	headerLength     = 12
	initLength       = 20
	cookieLength     = 8
	cookieParameter  = 7
	receiverWindow   = 65536
	checksumPosition = 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// packet is an SCTP packet with one chunk.
type packet struct {
	source, destination uint16
	tag                 uint32
	chunk               byte
	initiateTag         uint32
}

func newTag() uint32 { return rand.Uint32() | 1 }

func ephemeralPort() uint16 { return uint16(32768 + rand.IntN(28000)) }

// bytes returns an INIT or INIT ACK on the wire. OVS verifies the checksum, too.
func (p packet) bytes() []byte {
	length := initLength
	if p.chunk == chunkInitAck {
		length += cookieLength
	}
	wire := make([]byte, headerLength+length)
	order := binary.BigEndian
	order.PutUint16(wire[0:], p.source)
	order.PutUint16(wire[2:], p.destination)
	order.PutUint32(wire[4:], p.tag)
	chunk := wire[headerLength:]
	chunk[0] = p.chunk
	order.PutUint16(chunk[2:], uint16(length))
	order.PutUint32(chunk[4:], p.initiateTag)
	order.PutUint32(chunk[8:], receiverWindow)
	order.PutUint16(chunk[12:], 1)
	order.PutUint16(chunk[14:], 1)
	order.PutUint32(chunk[16:], p.initiateTag)
	if p.chunk == chunkInitAck {
		// An INIT ACK without a state cookie is invalid.
		order.PutUint16(chunk[initLength:], cookieParameter)
		order.PutUint16(chunk[initLength+2:], cookieLength)
	}
	binary.LittleEndian.PutUint32(wire[checksumPosition:], crc32.Checksum(wire, castagnoli))
	return wire
}

// parse reads the first chunk of a packet.
func parse(wire []byte) (packet, bool) {
	if len(wire) < headerLength+4 {
		return packet{}, false
	}
	order := binary.BigEndian
	chunk := wire[headerLength:]
	p := packet{
		source: order.Uint16(wire[0:]), destination: order.Uint16(wire[2:]), tag: order.Uint32(wire[4:]), chunk: chunk[0],
	}
	if p.chunk == chunkInit || p.chunk == chunkInitAck {
		if len(chunk) < initLength {
			return packet{}, false
		}
		p.initiateTag = order.Uint32(chunk[4:])
	}
	return p, true
}
