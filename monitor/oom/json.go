package oom

import "encoding/json"

// plainMessage and plainUse are the types without their methods, so that encoding/json does not call itself.
type (
	plainMessage Message
	plainUse     OtherProcessUse
)

// wireMessage shadows the sizes of a Message with pointers: unknown is null in JSON, never a number.
type wireMessage struct {
	plainMessage
	Tried               *int64            `json:"tried_bytes"`
	Total               *int64            `json:"total_bytes"`
	Free                *int64            `json:"free_bytes"`
	Allocated           *int64            `json:"allocated_bytes"`
	Reserved            *int64            `json:"reserved_bytes"`
	ReservedUnallocated *int64            `json:"reserved_unallocated_bytes"`
	PrivatePool         *int64            `json:"private_pool_bytes"`
	Allowed             *int64            `json:"allowed_bytes"`
	Process             *int64            `json:"process_bytes"`
	Others              []OtherProcessUse `json:"other_processes"`
}

// MarshalJSON writes unknown sizes as null.
func (m Message) MarshalJSON() ([]byte, error) {
	others := m.OtherProcesses
	if others == nil {
		others = []OtherProcessUse{}
	}
	return json.Marshal(wireMessage{
		plainMessage: plainMessage(m),
		Tried:        known(m.TriedBytes), Total: known(m.TotalBytes), Free: known(m.FreeBytes),
		Allocated: known(m.AllocatedBytes), Reserved: known(m.ReservedBytes),
		ReservedUnallocated: known(m.ReservedUnallocatedBytes), PrivatePool: known(m.PrivatePoolBytes),
		Allowed: known(m.AllowedBytes), Process: known(m.ProcessBytes), Others: others,
	})
}

// UnmarshalJSON reads null and absent sizes as Unknown.
func (m *Message) UnmarshalJSON(data []byte) error {
	wire := wireMessage{plainMessage: plainMessage(newMessage())}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*m = Message(wire.plainMessage)
	m.TriedBytes, m.TotalBytes, m.FreeBytes = orUnknown(wire.Tried), orUnknown(wire.Total), orUnknown(wire.Free)
	m.AllocatedBytes, m.ReservedBytes = orUnknown(wire.Allocated), orUnknown(wire.Reserved)
	m.ReservedUnallocatedBytes, m.PrivatePoolBytes = orUnknown(wire.ReservedUnallocated), orUnknown(wire.PrivatePool)
	m.AllowedBytes, m.ProcessBytes = orUnknown(wire.Allowed), orUnknown(wire.Process)
	m.OtherProcesses = wire.Others
	return nil
}

type wireUse struct {
	plainUse
	Bytes *int64 `json:"bytes"`
}

// MarshalJSON writes an unknown size as null.
func (u OtherProcessUse) MarshalJSON() ([]byte, error) {
	return json.Marshal(wireUse{plainUse: plainUse(u), Bytes: known(u.Bytes)})
}

// UnmarshalJSON reads a null or absent size as Unknown.
func (u *OtherProcessUse) UnmarshalJSON(data []byte) error {
	var wire wireUse
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*u = OtherProcessUse{PID: wire.PID, Bytes: orUnknown(wire.Bytes)}
	return nil
}

func known(bytes int64) *int64 {
	if bytes < 0 {
		return nil
	}
	return &bytes
}

func orUnknown(bytes *int64) int64 {
	if bytes == nil || *bytes < 0 {
		return Unknown
	}
	return *bytes
}
