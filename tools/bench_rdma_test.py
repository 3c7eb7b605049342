#!/usr/bin/env python3
"""Checks that bench_rdma.py reads the output of perftest correctly and compares the right cells."""

import unittest

import bench_rdma

SEND_LAT = """ Data ex. method : Ethernet
 local address: LID 0000 QPN 0x0011 PSN 0x8915c0
---------------------------------------------------------------------------------------
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]
 64      2000          11.45          153.85       11.98    \t       12.82       \t6.93   \t\t33.10   \t\t141.09
---------------------------------------------------------------------------------------
"""
SEND_BW = """ #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 128        5000             4.70               4.65   \t\t   0.038080
"""


def cell(system, size, concurrency, **columns):
    return bench_rdma.cell_of(system, "spin", size, concurrency, 100, columns.pop("rate", 10.0), **columns)


class Reading(unittest.TestCase):
    def test_latency_line(self):
        self.assertEqual(bench_rdma.row_of(SEND_LAT, 64), [2000, 11.45, 153.85, 11.98, 12.82, 6.93, 33.10, 141.09])

    def test_bandwidth_line(self):
        self.assertEqual(bench_rdma.row_of(SEND_BW, 128), [5000, 4.70, 4.65, 0.038080])

    def test_no_line(self):
        self.assertIsNone(bench_rdma.row_of("Couldn't connect to localhost:18515", 64))
        self.assertIsNone(bench_rdma.row_of(SEND_BW, 64))

    def test_units_of_rates(self):
        class Fixed(bench_rdma.Perftest):
            def run(self, tool, size):
                return bench_rdma.row_of(SEND_BW, size)
        self.assertAlmostEqual(Fixed("rxe0", 1).rate("ib_send_bw", 128)["per_s"], 4.65 * 2**20 / 128)

    def test_latency_columns(self):
        class Fixed(bench_rdma.Perftest):
            def run(self, tool, size):
                return bench_rdma.row_of(SEND_LAT, size)
        one_way = Fixed("rxe0", 1).latency(64)
        self.assertEqual((one_way["typical"], one_way["average"], one_way["p99"]), (11.98, 12.82, 33.10))

    def test_cells(self):
        self.assertEqual(bench_rdma.read_cells("128x1,4Kx16,1Mx4"), [(128, 1), (4096, 16), (1 << 20, 4)])
        self.assertEqual([bench_rdma.size_text(size) for size in (128, 4096, 1 << 20)], ["128", "4K", "1M"])


class Ratios(unittest.TestCase):
    def test_latency_by_round_trip_and_rates_by_rate(self):
        cells = [cell("hawser", 128, 1, rate=30_000.0, p50_us=30.0), cell("ib_send_lat", 128, 1, p50_us=24.0),
                 cell("hawser", 128, 64, rate=90_000.0), cell("ib_send_bw", 128, 64, rate=45_000.0),
                 cell("hawser", 9, 9, rate=1.0)]
        ratios = {(ratio["concurrency"], ratio["tool"]): ratio["ratio"] for ratio in bench_rdma.ratios_of(cells)}
        self.assertEqual(ratios, {(1, "ib_send_lat"): 1.25, (64, "ib_send_bw"): 2.0})
        text = bench_rdma.table(cells, bench_rdma.ratios_of(cells))
        self.assertIn("x1.25", text)
        self.assertIn("x2.00", text)

    def test_medians_go_column_by_column(self):
        rounds = [[cell("hawser", 128, 1, rate=rate, p50_us=p50)] for rate, p50 in ((10.0, 3.0), (30.0, 1.0), (20.0, 2.0))]
        merged = bench_rdma.medians(rounds)
        self.assertEqual(len(merged), 1)
        self.assertEqual((merged[0]["calls_per_s"], merged[0]["p50_us"]), (20.0, 2.0))
        self.assertEqual(merged[0]["system"], "hawser")

    def test_one_in_flight_is_measured_against_latency(self):
        self.assertEqual(bench_rdma.tools_for(128, 1), ("ib_send_lat",))
        self.assertEqual(bench_rdma.tools_for(128, 16), bench_rdma.BANDWIDTH)
        self.assertIn("ib_send_bw", bench_rdma.tools_for(1 << 20, 1))


if __name__ == "__main__":
    unittest.main()
