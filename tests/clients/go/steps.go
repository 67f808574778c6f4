package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// steps are what tests ask for by name.
var steps = map[string]func(*server) (any, error){
	"message":      message,
	"asyncBatches": asyncBatches,
	"compressed":   compressed,
	"chunked":      chunked,
	"exclusive":    exclusive,
	"shared":       shared,
	"keyShared":    keyShared,
	"failover":     failover,
	"negative":     negative,
	"deadLetter":   deadLetter,
	"batchIndex":   batchIndex,
	"cumulative":   cumulative,
	"seek":         seek,
	"readers":      readers,
	"pattern":      pattern,
	"delayed":      delayed,
	"avro":         avro,
	"json":         jsonSchema,
	"bytesSchema":  bytesSchema,
	"tableView":    tableView,
	"transaction":  transaction,
	"registry":     registry,
}

// message sends one message, there and back.
func message(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	s.send(topic, 1)
	return values(consumer, 1), nil
}

// asyncBatches sends many in flight, in batches, in order.
func asyncBatches(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic})
	for i := 0; i < 500; i++ {
		producer.SendAsync(context.Background(), text("m%d", i), func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.Flush())
	for i, value := range values(consumer, 500) {
		if value != fmt.Sprintf("m%d", i) {
			return value, nil
		}
	}
	return true, nil
}

// compressed sends with every compression.
func compressed(s *server) (any, error) {
	found := map[string]string{}
	for name, kind := range map[string]pulsar.CompressionType{"LZ4": pulsar.LZ4, "ZLIB": pulsar.ZLib, "ZSTD": pulsar.ZSTD} {
		topic := s.topic()
		consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
		producer := s.producer(pulsar.ProducerOptions{Topic: topic, CompressionType: kind})
		_, err := producer.Send(context.Background(), text("text"))
		check(err)
		found[name] = values(consumer, 1)[0]
	}
	return found, nil
}

// chunked sends a message that is larger than the largest entry.
func chunked(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, EnableChunking: true, DisableBatching: true})
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 12<<20)})
	check(err)
	received := next(consumer)
	return len(received.Payload()), consumer.Ack(received)
}

// exclusive refuses a second consumer.
func exclusive(s *server) (any, error) {
	topic := s.topic()
	s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	client, err := s.client()
	check(err)
	_, err = client.Subscribe(pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "s"})
	return err != nil, nil
}

// shared spreads messages over two consumers.
func shared(s *server) (any, error) {
	topic := s.topic()
	one := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	two := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	s.send(topic, 20)
	found := drainAll(20, one, two)
	first, second := found[0], found[1]
	return []any{len(first) + len(second), len(first) > 0, len(second) > 0}, nil
}

// keyShared keeps every key with one consumer: those of these names share keys as with Pulsar.
func keyShared(s *server) (any, error) {
	topic := s.topic()
	one := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared, Name: "a"})
	two := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared, Name: "b"})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	for i := 0; i < 20; i++ {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Key: fmt.Sprintf("key-%d", i), Payload: []byte{1}})
		check(err)
	}
	owners := make([]byte, 20)
	for i, of := range drainAll(20, one, two) {
		for _, received := range of {
			var number int
			fmt.Sscanf(received.Key(), "key-%d", &number)
			owners[number] = "ab"[i]
		}
	}
	return string(owners), nil
}

type told chan bool

func (t told) BecameActive(pulsar.Consumer, string, int32)   { t <- true }
func (t told) BecameInactive(pulsar.Consumer, string, int32) { t <- false }

// failover tells who is active: the first, and when that is gone the second.
func failover(s *server) (any, error) {
	topic := s.topic()
	first, second := make(told, 10), make(told, 10)
	one := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: "a", EventListener: first})
	found := []bool{<-first}
	s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: "b", EventListener: second})
	one.Close()
	for active := range second {
		found = append(found, active)
		if active {
			break
		}
	}
	return found[0] && found[len(found)-1], nil
}

// negative brings a message again, counted.
func negative(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond})
	s.send(topic, 1)
	consumer.Nack(next(consumer))
	again := next(consumer)
	return again.RedeliveryCount(), consumer.Ack(again)
}

// deadLetter moves a message away after two redeliveries.
func deadLetter(s *server) (any, error) {
	topic := s.topic()
	dead := s.subscribe(pulsar.ConsumerOptions{Topic: topic + "-dead"})
	consumer := s.subscribe(pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: 50 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 2, DeadLetterTopic: topic + "-dead"},
	})
	s.send(topic, 1)
	consumer.Nack(next(consumer))
	consumer.Nack(next(consumer))
	go drain(consumer)
	return values(dead, 1), nil
}

// batchIndex acknowledges part of a batch; the rest comes again under its own indexes.
func batchIndex(s *server) (any, error) {
	topic := s.topic()
	options := pulsar.ConsumerOptions{Topic: topic, EnableBatchIndexAcknowledgment: true, AckWithResponse: true}
	consumer := s.subscribe(options)
	s.batch(topic, 6)
	for i := 0; i < 6; i++ {
		received := next(consumer)
		if i%2 == 0 {
			check(consumer.Ack(received))
		}
	}
	consumer.Close()
	consumer = s.subscribe(options)
	found := []int32{}
	for i := 0; i < 3; i++ {
		found = append(found, next(consumer).ID().BatchIdx())
	}
	return found, nil
}

// cumulative acknowledges all up to a message.
func cumulative(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic, AckWithResponse: true})
	s.send(topic, 5)
	var third pulsar.Message
	for i := 0; i < 3; i++ {
		third = next(consumer)
	}
	check(consumer.AckCumulative(third))
	consumer.Close()
	return values(s.subscribe(pulsar.ConsumerOptions{Topic: topic}), 2), nil
}

// seek goes on after a message.
func seek(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic})
	ids := s.send(topic, 5)
	values(consumer, 5)
	check(consumer.Seek(ids[3]))
	return values(consumer, 1), nil
}

// readers begin at the beginning, after a message, and with it.
func readers(s *server) (any, error) {
	topic := s.topic()
	ids := s.send(topic, 5)
	client, err := s.client()
	check(err)
	found := []int{}
	for _, options := range []pulsar.ReaderOptions{
		{Topic: topic, StartMessageID: pulsar.EarliestMessageID()},
		{Topic: topic, StartMessageID: ids[2]},
		{Topic: topic, StartMessageID: ids[2], StartMessageIDInclusive: true},
	} {
		reader, err := client.CreateReader(options)
		check(err)
		count := 0
		for ; reader.HasNext(); count++ {
			_, err = reader.Next(context.Background())
			check(err)
		}
		found = append(found, count)
		reader.Close()
	}
	return found, nil
}

// pattern subscribes to topics by their names.
func pattern(s *server) (any, error) {
	topic := s.topic()
	s.send(topic+"-a", 1)
	s.send(topic+"-b", 1)
	consumer := s.subscribe(pulsar.ConsumerOptions{TopicsPattern: topic + "-.*", SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest})
	return len(values(consumer, 2)), nil
}

// delayed delivers a message later than those behind it.
func delayed(s *server) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic})
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: 5 * time.Second})
	check(err)
	_, err = producer.Send(context.Background(), text("now"))
	check(err)
	return values(consumer, 2), nil
}

const definition = `{"type":"record","name":"Flight","fields":[{"name":"number","type":"int"}]}`

type flight struct {
	Number int `json:"number" avro:"number"`
}

// avro sends objects by Avro.
func avro(s *server) (any, error) { return typed(s, pulsar.NewAvroSchema(definition, nil)) }

// jsonSchema sends objects by JSON.
func jsonSchema(s *server) (any, error) { return typed(s, pulsar.NewJSONSchema(definition, nil)) }

func typed(s *server, schema pulsar.Schema) (any, error) {
	topic := s.topic()
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Schema: schema})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, Schema: schema})
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: flight{1545}})
	check(err)
	var found flight
	check(next(consumer).GetSchemaValue(&found))
	return found.Number, nil
}

// bytesSchema names the schema of bytes, of which the registry keeps no version.
func bytesSchema(s *server) (any, error) {
	topic, schema := s.topic(), pulsar.NewBytesSchema(nil)
	consumer := s.subscribe(pulsar.ConsumerOptions{Topic: topic, Schema: schema})
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, Schema: schema})
	_, err := producer.Send(context.Background(), text("bytes"))
	check(err)
	var found []byte
	check(next(consumer).GetSchemaValue(&found))
	return string(found), nil
}

// tableView shows the last value of each key.
func tableView(s *server) (any, error) {
	topic := s.topic()
	producer := s.producer(pulsar.ProducerOptions{Topic: topic})
	for i := 0; i < 4; i++ {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Key: fmt.Sprint("k", i%2), Payload: []byte(fmt.Sprint("v", i))})
		check(err)
	}
	client, err := s.client()
	check(err)
	var empty []byte
	view, err := client.CreateTableView(pulsar.TableViewOptions{Topic: topic, Schema: pulsar.NewBytesSchema(nil), SchemaValueType: typeOf(empty)})
	check(err)
	defer view.Close()
	return []any{view.Size(), view.ContainsKey("k1")}, nil
}

// transaction is refused, and soon.
func transaction(s *server) (any, error) {
	client, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.serviceURL, EnableTransaction: true, OperationTimeout: 5 * time.Second, Logger: quiet()})
	if err == nil {
		defer client.Close()
		_, err = client.NewTransaction(time.Second)
	}
	if err == nil {
		return nil, errors.New("a transaction was begun")
	}
	return true, nil
}
