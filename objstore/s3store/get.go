package s3store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/simple-event-broker/seb/objstore"
)

// objectBytesMax is the size of the largest object that a single PutObject can write. Get refuses an answer
// with a larger Content-Length before it allocates memory for the body.
const objectBytesMax = 5 << 30

// Get implements [objstore.Store] by GetObject. If the answer does not have exactly the range that was asked
// for, Get returns an error.
func (s *Store) Get(ctx context.Context, key string, off, n int64) (objstore.Object, error) {
	name, err := s.name(key)
	if err != nil {
		return objstore.Object{}, fmt.Errorf("get: %w", err)
	}
	if off < 0 {
		return objstore.Object{}, fmt.Errorf("get %s: negative offset %d", key, off)
	}
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	object, err := s.get(ctx, name, off, n)
	switch {
	case err == nil:
		return object, nil
	case isNoSuchKey(err):
		return objstore.Object{Time: errorTime(err)}, fmt.Errorf("get %s: %w", key, objstore.ErrNotFound)
	case errors.As(err, new(*smithy.OperationError)):
		err = s.explain(objstore.VerbGet, err)
	}
	return objstore.Object{}, fmt.Errorf("get %s: %w", key, err)
}

func (s *Store) get(ctx context.Context, name string, off, n int64) (objstore.Object, error) {
	// HTTP has no empty range. So a Get of 0 bytes, which tells the object's size, reads one byte.
	ask := byteRange{off: off, n: n}
	if n == 0 {
		ask.n = 1
	}
	out, err := again(func() (*s3.GetObjectOutput, error) {
		return s.client.GetObject(ctx, &s3.GetObjectInput{Bucket: &s.bucket, Key: &name, Range: ask.header()})
	})
	if status(err) == http.StatusRequestedRangeNotSatisfiable {
		return s.beyondEnd(ctx, name, off, err)
	}
	if err != nil {
		return objstore.Object{}, err
	}
	defer out.Body.Close() // all needed bytes were read, or the read failed
	size, err := ask.check(out)
	if err != nil {
		return objstore.Object{}, err
	}
	object := objstore.Object{Body: make([]byte, *out.ContentLength), Size: size, Time: answerTime(out.ResultMetadata)}
	if _, err := io.ReadFull(out.Body, object.Body); err != nil {
		return objstore.Object{}, fmt.Errorf("read %d bytes: %w", len(object.Body), err)
	}
	if n == 0 {
		object.Body = object.Body[:0]
	}
	return object, nil
}

// beyondEnd returns the answer to a Get of an offset at or beyond the object's end. rangeErr is the error
// that the server answered.
func (s *Store) beyondEnd(ctx context.Context, name string, off int64, rangeErr error) (objstore.Object, error) {
	object := objstore.Object{Size: -1, Time: errorTime(rangeErr)}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](rangeErr); ok {
		if size, ok := strings.CutPrefix(response.Response.Header.Get("Content-Range"), "bytes */"); ok {
			if n, err := strconv.ParseInt(size, 10, 64); err == nil {
				object.Size = n
			}
		}
	}
	if object.Size < 0 {
		// A 404 of HeadObject does not mean ErrNotFound: such an answer has no body, so it does not say
		// whether the object or the bucket is missing.
		head, err := s.client.HeadObject(ctx, &s3.HeadObjectInput{Bucket: &s.bucket, Key: &name})
		if err != nil {
			return objstore.Object{}, fmt.Errorf("find out the size: %w", err)
		}
		if head.ContentLength == nil {
			return objstore.Object{}, errors.New("find out the size: the response has no Content-Length")
		}
		object.Size, object.Time = *head.ContentLength, answerTime(head.ResultMetadata)
	}
	if off < object.Size {
		return objstore.Object{}, fmt.Errorf("the store answered that offset %d is out of range, in an object of %d bytes: %w", off, object.Size, rangeErr)
	}
	return object, nil
}

// byteRange is the range of a Get: n bytes from off, or all bytes from off if n is negative.
type byteRange struct{ off, n int64 }

// header returns the Range header, nil for the whole object.
func (r byteRange) header() *string {
	switch {
	case r.off == 0 && r.n < 0:
		return nil
	case r.n < 0 || r.off > math.MaxInt64-r.n:
		return aws.String(fmt.Sprintf("bytes=%d-", r.off))
	}
	return aws.String(fmt.Sprintf("bytes=%d-%d", r.off, r.off+r.n-1))
}

// check returns the object's size. It returns an error unless the answer has exactly the bytes of the range.
func (r byteRange) check(out *s3.GetObjectOutput) (size int64, err error) {
	if out.ContentLength == nil || *out.ContentLength < 0 {
		return 0, errors.New("the response has no Content-Length")
	}
	var from int64
	length := *out.ContentLength
	if size = length; out.ContentRange != nil {
		var end int64 // the offset of the last byte
		if _, err := fmt.Sscanf(*out.ContentRange, "bytes %d-%d/%d", &from, &end, &size); err != nil {
			return 0, fmt.Errorf("the response's Content-Range is %q: %w", *out.ContentRange, err)
		}
		if end-from+1 != length {
			return 0, fmt.Errorf("the response's Content-Range is %q, its Content-Length %d", *out.ContentRange, length)
		}
	}
	want := size - r.off
	if r.n >= 0 {
		want = min(want, r.n)
	}
	if from != r.off || length != want {
		return 0, fmt.Errorf("asked for %d bytes at offset %d of %d bytes, but the response has %d bytes at offset %d", want, r.off, size, length, from)
	}
	if length > objectBytesMax {
		return 0, fmt.Errorf("the object of %d bytes is larger than any Create can have made", length)
	}
	return size, nil
}
