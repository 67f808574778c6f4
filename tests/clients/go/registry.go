package main

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/sr"
)

const orders = `{"type":"record","name":"Order","fields":[{"name":"drink","type":"string"}]}`
const later = `{"type":"record","name":"Order","fields":[{"name":"drink","type":"string"},{"name":"cups","type":"int"}]}`

// registry registers, looks up, compares and deletes schemas with franz-go's client.
func registry(s *server) (any, error) {
	ctx := context.Background()
	client, err := sr.NewClient(sr.URLs(s.httpURL + "/registry"))
	check(err)
	made, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: orders})
	check(err)
	byID, err := client.SchemaByID(ctx, made.ID)
	check(err)
	found, err := client.LookupSchema(ctx, "go-value", sr.Schema{Schema: orders})
	check(err)
	compared, err := client.CheckCompatibility(ctx, "go-value", -1, sr.Schema{Schema: later})
	check(err)
	_, err = client.CreateSchema(ctx, "go-value", sr.Schema{Schema: later})
	var refused *sr.ResponseError
	if !errors.As(err, &refused) {
		return nil, err
	}
	level := client.SetCompatibility(ctx, sr.SetCompatibility{Level: sr.CompatNone}, "go-value")[0]
	check(level.Err)
	next, err := client.CreateSchema(ctx, "go-value", sr.Schema{Schema: later})
	check(err)
	var serde sr.Serde
	serde.Register(next.ID, "", sr.EncodeFn(func(v any) ([]byte, error) { return []byte(v.(string)), nil }))
	framed, err := serde.Encode("x")
	check(err)
	id, rest, err := serde.DecodeID(framed)
	check(err)
	deleted, err := client.DeleteSubject(ctx, "go-value", sr.SoftDelete)
	check(err)
	_, err = client.SchemaByVersion(ctx, "go-value", 1)
	gone := &sr.ResponseError{}
	errors.As(err, &gone)
	return []any{
		byID.Schema == orders, found.Version, compared.Is, refused.ErrorCode, next.Version, id == next.ID, string(rest),
		deleted, gone.ErrorCode,
	}, nil
}
