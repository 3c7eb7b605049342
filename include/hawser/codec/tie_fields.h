#pragma once

#include <cstddef>
#include <tuple>

namespace hawser::codec {

#define HAWSER_TIE(fields, ...)    \
  if constexpr (count == fields) { \
    auto& [__VA_ARGS__] = value;   \
    return std::tie(__VA_ARGS__);  \
  }                                \
  static_assert(true)

// Returns references to the `count` fields of a struct as a std::tuple. The language cannot express this for any
// number, so each number has its own line.
template <std::size_t count, class T>
constexpr auto tie_fields(T& value) noexcept {
  HAWSER_TIE(1, a);
  HAWSER_TIE(2, a, b);
  HAWSER_TIE(3, a, b, c);
  HAWSER_TIE(4, a, b, c, d);
  HAWSER_TIE(5, a, b, c, d, e);
  HAWSER_TIE(6, a, b, c, d, e, f);
  HAWSER_TIE(7, a, b, c, d, e, f, g);
  HAWSER_TIE(8, a, b, c, d, e, f, g, h);
  HAWSER_TIE(9, a, b, c, d, e, f, g, h, i);
  HAWSER_TIE(10, a, b, c, d, e, f, g, h, i, j);
  HAWSER_TIE(11, a, b, c, d, e, f, g, h, i, j, k);
  HAWSER_TIE(12, a, b, c, d, e, f, g, h, i, j, k, l);
  HAWSER_TIE(13, a, b, c, d, e, f, g, h, i, j, k, l, m);
  HAWSER_TIE(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  HAWSER_TIE(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  HAWSER_TIE(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  HAWSER_TIE(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  HAWSER_TIE(18, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  HAWSER_TIE(19, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  HAWSER_TIE(20, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  HAWSER_TIE(21, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  HAWSER_TIE(22, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
  HAWSER_TIE(23, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  HAWSER_TIE(24, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
  HAWSER_TIE(25, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y);
  HAWSER_TIE(26, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z);
  HAWSER_TIE(27, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A);
  HAWSER_TIE(28, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B);
  HAWSER_TIE(29, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C);
  HAWSER_TIE(30, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D);
  HAWSER_TIE(31, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E);
  HAWSER_TIE(32, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F);
  HAWSER_TIE(33, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G);
  HAWSER_TIE(34, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H);
  HAWSER_TIE(35, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I);
  HAWSER_TIE(36, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J);
  HAWSER_TIE(37, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K);
  HAWSER_TIE(38, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L);
  HAWSER_TIE(39, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M);
  HAWSER_TIE(40, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N);
  HAWSER_TIE(41, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O);
  HAWSER_TIE(42, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P);
  HAWSER_TIE(43, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q);
  HAWSER_TIE(44, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R);
  HAWSER_TIE(45, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S);
  HAWSER_TIE(46, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U);
  HAWSER_TIE(47, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V);
  HAWSER_TIE(48, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W);
  HAWSER_TIE(49, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X);
  HAWSER_TIE(50, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y);
  HAWSER_TIE(51, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z);
  HAWSER_TIE(52, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa);
  HAWSER_TIE(53, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab);
  HAWSER_TIE(54, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac);
  HAWSER_TIE(55, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad);
  HAWSER_TIE(56, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae);
  HAWSER_TIE(57, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af);
  HAWSER_TIE(58, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag);
  HAWSER_TIE(59, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah);
  HAWSER_TIE(60, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai);
  HAWSER_TIE(61, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj);
  HAWSER_TIE(62, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak);
  HAWSER_TIE(63, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al);
  HAWSER_TIE(64, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H,
             I, J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am);
}

#undef HAWSER_TIE

}  // namespace hawser::codec
