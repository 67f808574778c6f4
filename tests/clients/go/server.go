package main

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/sirupsen/logrus"
)

const receiveLimit = 25 * time.Second

var numbers atomic.Int64

// server is what a step talks to, with the client of the step, which is closed when it ends.
type server struct {
	serviceURL, httpURL string
	step                string
	args                map[string]any
	lock                sync.Mutex
	made                pulsar.Client
}

func quiet() log.Logger {
	logger := logrus.New()
	logger.SetLevel(logrus.ErrorLevel)
	return log.NewLoggerWithLogrus(logger)
}

func (s *server) client() (pulsar.Client, error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.made != nil {
		return s.made, nil
	}
	made, err := pulsar.NewClient(pulsar.ClientOptions{URL: s.serviceURL, OperationTimeout: 10 * time.Second, Logger: quiet()})
	s.made = made
	return made, err
}

// topic is a name that no other step uses.
func (s *server) topic() string {
	return fmt.Sprintf("persistent://public/default/go-%s-%d", strings.ToLower(s.step), numbers.Add(1))
}

func (s *server) close() {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.made != nil {
		s.made.Close()
	}
}

// subscribe is to the subscription "s"; it panics where that fails.
func (s *server) subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	client, err := s.client()
	check(err)
	options.SubscriptionName = "s"
	consumer, err := client.Subscribe(options)
	check(err)
	return consumer
}

// producer panics where there is none.
func (s *server) producer(options pulsar.ProducerOptions) pulsar.Producer {
	client, err := s.client()
	check(err)
	producer, err := client.CreateProducer(options)
	check(err)
	return producer
}

// send sends m0, m1 and so on, one entry each.
func (s *server) send(topic string, count int) []pulsar.MessageID {
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	defer producer.Close()
	ids := []pulsar.MessageID{}
	for i := 0; i < count; i++ {
		id, err := producer.Send(context.Background(), text("m%d", i))
		check(err)
		ids = append(ids, id)
	}
	return ids
}

// batch sends m0, m1 and so on as one entry.
func (s *server) batch(topic string, count int) {
	producer := s.producer(pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: 10 * time.Second})
	defer producer.Close()
	for i := 0; i < count; i++ {
		producer.SendAsync(context.Background(), text("m%d", i), func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) { check(err) })
	}
	check(producer.Flush())
}

func text(format string, args ...any) *pulsar.ProducerMessage {
	return &pulsar.ProducerMessage{Payload: []byte(fmt.Sprintf(format, args...))}
}

// next is the next message; it panics where none comes.
func next(consumer pulsar.Consumer) pulsar.Message {
	ctx, cancel := context.WithTimeout(context.Background(), receiveLimit)
	defer cancel()
	received, err := consumer.Receive(ctx)
	check(err)
	return received
}

// values are those of the next messages, acknowledged.
func values(consumer pulsar.Consumer, count int) []string {
	found := []string{}
	for i := 0; i < count; i++ {
		received := next(consumer)
		check(consumer.Ack(received))
		found = append(found, string(received.Payload()))
	}
	return found
}

// drain is everything that comes until nothing does for a while.
func drain(consumer pulsar.Consumer) []pulsar.Message {
	found := []pulsar.Message{}
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		received, err := consumer.Receive(ctx)
		cancel()
		if err != nil {
			return found
		}
		check(consumer.Ack(received))
		found = append(found, received)
	}
}

// drainAll is what each of several consumers gets: so many messages together, and until no more come for a while.
func drainAll(count int, consumers ...pulsar.Consumer) [][]pulsar.Message {
	found := make([][]pulsar.Message, len(consumers))
	for end := time.Now().Add(receiveLimit); count > 0 && time.Now().Before(end); {
		for i, consumer := range consumers {
			came := drain(consumer)
			found[i] = append(found[i], came...)
			count -= len(came)
		}
	}
	return found
}

func typeOf(value any) reflect.Type { return reflect.TypeOf(value) }

func check(err error) {
	if err != nil {
		panic(err)
	}
}
