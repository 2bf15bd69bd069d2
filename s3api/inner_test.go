package s3api

import (
	"errors"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestErrorsInWords: for logs, with their causes.
func TestErrorsInWords(t *testing.T) {
	cause := errors.New("the disk is full")
	e := refuse(http.StatusConflict, "Busy", "Please try %s.", "again")
	require.EqualError(t, e, "Busy (409): Please try again.")
	require.NoError(t, e.Unwrap())
	e.Cause = cause
	require.EqualError(t, e, "Busy (409): Please try again.: the disk is full")
	require.ErrorIs(t, e, cause)
	// What is no refusal of a signature is no fault of the client's.
	e = (&Handler{}).refuseSignature(cause)
	require.Equal(t, http.StatusInternalServerError, e.Status)
	require.ErrorIs(t, e, cause)
}
