package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"time"
)

// HTTP/1.1, or HTTP/2 with PINGs each `ping`, without TLS if `certificate` is empty.
func http_client(h2 bool, certificate string, ping time.Duration) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 100, Protocols: new(http.Protocols)}
	if !h2 {
		transport.Protocols.SetHTTP1(true)
	} else {
		transport.Protocols.SetHTTP2(true)
		transport.Protocols.SetUnencryptedHTTP2(certificate == "")
		transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: ping, PingTimeout: 15 * time.Second}
	}
	if certificate != "" {
		pem, err := os.ReadFile(certificate)
		check(err == nil, err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	}
	return &http.Client{Transport: transport, Timeout: limit}
}

func fetch(client *http.Client, url string, size int, h2 bool) error {
	response, err := client.Get(url)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	got, err := io.Copy(io.Discard, response.Body)
	if err == nil && (response.StatusCode != 200 || int(got) != size || (response.ProtoMajor == 2) != h2) {
		return fmt.Errorf("status %d, %d bytes, %s", response.StatusCode, got, response.Proto)
	}
	return err
}

func http_cases(base, certificate string) {
	fmt.Println("net/http of", runtime.Version())
	for _, h2 := range []bool{false, true} {
		client := http_client(h2, certificate, 100*time.Millisecond)
		version := map[bool]string{false: "HTTP/1.1 ", true: "HTTP/2 "}[h2]
		for _, each := range [][2]int{{64, 1 << 20}, {200, 100_000}, {1000, 100}} {
			together(fmt.Sprint(version, each), each[0], func(int) error {
				return fetch(client, fmt.Sprintf("%s/bytes?n=%d", base, each[1]), each[1], h2)
			})
		}
		together(version+"uploads", 32, func(int) error {
			response, err := client.Post(base+"/upload", "application/octet-stream", bytes.NewReader(make([]byte, 1<<20)))
			if err != nil {
				return err
			}
			text, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err == nil && string(text) != "1048576" {
				return fmt.Errorf("the server received %s", text)
			}
			return err
		})
		// PINGs while a response is slow.
		check(fetch(client, base+"/parts?n=20&size=100&ms=100", 2000, h2) == nil, version, "a slow response")
		check(fetch(client, base+"/bytes?n=100&ms=1500", 100, h2) == nil, version, "a late response")

		// Responses that are not read.
		var paused []*http.Response
		for range 16 {
			response, err := client.Get(base + "/bytes?n=4000000")
			check(err == nil, err)
			paused = append(paused, response)
		}
		latency(version+"beside responses that are not read", 50, func() error {
			return fetch(client, base+"/bytes?n=100", 100, h2)
		})
		together(version+"paused responses", len(paused), func(i int) error {
			defer paused[i].Body.Close()
			got, err := io.Copy(io.Discard, paused[i].Body)
			if err == nil && got != 4000000 {
				return fmt.Errorf("%d bytes", got)
			}
			return err
		})
		// Requests that are cancelled, and their neighbours.
		over := make(chan struct{})
		go func() {
			defer close(over)
			for range 300 {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Millisecond)
				request, _ := http.NewRequestWithContext(ctx, "GET", base+"/bytes?n=10&ms=100", nil)
				if response, err := client.Do(request); err == nil {
					response.Body.Close()
				}
				cancel()
			}
		}()
		together(version+"neighbours of cancelled requests", 4, func(int) error {
			for {
				if err := fetch(client, base+"/bytes?n=100", 100, h2); err != nil {
					return err
				}
				select {
				case <-over:
					return nil
				default:
				}
			}
		})
		client.CloseIdleConnections()
	}
	if certificate != "" {
		// Offers h2 and http/1.1.
		client := http_client(true, certificate, 0)
		client.Transport.(*http.Transport).Protocols.SetHTTP1(true)
		check(fetch(client, base+"/bytes?n=10", 10, true) == nil, "ALPN with h2 and http/1.1")
	}
}

func http_restart(base string) {
	client := http_client(true, "", time.Second)
	until_input_ends(func(ctx context.Context) error {
		for {
			request, _ := http.NewRequestWithContext(ctx, "GET", base+"/bytes?n=100", nil)
			response, err := client.Do(request)
			if err != nil {
				// The server is not there for a while: net/http retries what was not sent.
				if ctx.Err() != nil {
					return err
				}
				time.Sleep(20 * time.Millisecond)
				continue
			}
			_, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			if err == nil && response.StatusCode != 200 {
				err = fmt.Errorf("status %d", response.StatusCode)
			}
			return err
		}
	})
}
