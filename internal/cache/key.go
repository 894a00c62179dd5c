package cache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// ErrUnsafe says that other users may have forged entries: the directory or the key file belongs to
// another user, or other users may write to the directory, or read or write the key file.
var ErrUnsafe = errors.New("the cache directory is not safe")

// key authenticates the entries of a directory. The key is stored in a file of the directory, so that
// the next process can use the entries that this process writes.
type key struct {
	secret [32]byte
	aead   cipher.AEAD
}

func newKey(secret [32]byte) (*key, error) {
	block, err := aes.NewCipher(secret[:])
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &key{secret, aead}, nil
}

const keyName = "key" + volumeSuffix

// File mode bits that must not be set: othersWrite for the directory, othersUse for the key file.
const (
	othersWrite fs.FileMode = 0o022
	othersUse   fs.FileMode = 0o077
)

const (
	nonceSize = 12
	macSize   = 16
)

// mac returns the MAC of a header and a batch: the tag of AES-256-GCM with the header as
// plaintext and the batch as additional data. It drops the ciphertext. With processor support
// for AES, this takes a fifth of the time of HMAC-SHA256. No two entries under one key may have
// the same nonce; random nonces are safe for four billion entries.
func (k *key) mac(nonce, header, batch []byte) []byte {
	return k.aead.Seal(nil, nonce, header, batch)[len(header):]
}

// openKey reads the key file at path. If there is no such file, openKey makes one with a new key. The
// caller must hold the lock of the directory. If a crash left an incomplete key file, openKey replaces the
// file: no entry can exist yet, since entries are written only after the key file is complete.
func openKey(path string) (*key, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("open the key file of the cache directory: %w", err)
	}
	defer func() { _ = f.Close() }() // an error does not matter: the file was only read
	if err := checkPrivate(path, othersUse); err != nil {
		return nil, err
	}
	var secret [32]byte
	_, err = io.ReadFull(f, secret[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("remove the incomplete key file of the cache directory: %w", err)
		}
		return makeKey(path)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key file of the cache directory: %w", err)
	}
	return newKey(secret)
}

func makeKey(path string) (*key, error) {
	var secret [32]byte
	rand.Read(secret[:])
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil {
		_, err = f.Write(secret[:])
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("make the key file of the cache directory: %w", err)
	}
	return newKey(secret)
}

// CheckDir returns an error that wraps [ErrUnsafe] if dir, or the key file in it, exists and is
// unsafe. It changes nothing; [Open] checks again.
func CheckDir(dir string) error {
	for path, forbidden := range map[string]fs.FileMode{dir: othersWrite, filepath.Join(dir, keyName): othersUse} {
		if err := checkPrivate(path, forbidden); errors.Is(err, ErrUnsafe) {
			return err
		}
	}
	return nil
}

// checkPrivate returns an error if a file or directory belongs to another user, or if its mode has one
// of the forbidden bits. A symbolic link in place of the key file is an error too.
func checkPrivate(path string, forbidden fs.FileMode) error {
	stat := os.Stat
	if forbidden == othersUse {
		stat = os.Lstat
	}
	info, err := stat(path)
	if err != nil {
		return fmt.Errorf("stat cache directory: %w", err)
	}
	switch mode := info.Mode(); {
	case !ownedByUs(info):
		return fmt.Errorf("%w: %s belongs to another user: name a directory that belongs to the user of this process", ErrUnsafe, path)
	case forbidden == othersWrite && !mode.IsDir():
		return fmt.Errorf("%w: %s is not a directory, its mode is %v: name a directory", ErrUnsafe, path, mode)
	case forbidden == othersUse && !mode.IsRegular():
		return fmt.Errorf("%w: %s is not a regular file, its mode is %v: remove it", ErrUnsafe, path, mode)
	case checksMode && mode.Perm()&forbidden != 0:
		return fmt.Errorf("%w: the mode of %s is %#o, which gives other users access: chmod it to %#o", ErrUnsafe, path, mode.Perm(), mode.Perm()&^othersUse)
	}
	return nil
}
