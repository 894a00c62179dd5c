package s3store_test

import (
	"testing"

	"github.com/simple-event-broker/seb/internal/test/s3test"
	"github.com/simple-event-broker/seb/objstore"
	"github.com/simple-event-broker/seb/objstore/storetest"
)

func TestFakeConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return s3test.Open(t, s3test.Fake(t)) })
}

func TestVersityGWConforms(t *testing.T) {
	storetest.Run(t, func(t *testing.T) objstore.Store { return s3test.Open(t, s3test.VersityGW(t)) })
}
