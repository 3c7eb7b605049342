#pragma once

#include <cstddef>
#include <tuple>

namespace hawser::codec {

#define HAWSER_TIE(...)        \
  auto& [__VA_ARGS__] = value; \
  return std::tie(__VA_ARGS__)

// Returns references to the `count` fields of a struct as a std::tuple. The language cannot express this for any
// number, so each number has its own line.
template <std::size_t count, class T>
constexpr auto tie_fields(T& value) noexcept {
  if constexpr (count == 1) {
    HAWSER_TIE(a);
  } else if constexpr (count == 2) {
    HAWSER_TIE(a, b);
  } else if constexpr (count == 3) {
    HAWSER_TIE(a, b, c);
  } else if constexpr (count == 4) {
    HAWSER_TIE(a, b, c, d);
  } else if constexpr (count == 5) {
    HAWSER_TIE(a, b, c, d, e);
  } else if constexpr (count == 6) {
    HAWSER_TIE(a, b, c, d, e, f);
  } else if constexpr (count == 7) {
    HAWSER_TIE(a, b, c, d, e, f, g);
  } else if constexpr (count == 8) {
    HAWSER_TIE(a, b, c, d, e, f, g, h);
  } else if constexpr (count == 9) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i);
  } else if constexpr (count == 10) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j);
  } else if constexpr (count == 11) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k);
  } else if constexpr (count == 12) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l);
  } else if constexpr (count == 13) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m);
  } else if constexpr (count == 14) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n);
  } else if constexpr (count == 15) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o);
  } else if constexpr (count == 16) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
  } else if constexpr (count == 17) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q);
  } else if constexpr (count == 18) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r);
  } else if constexpr (count == 19) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s);
  } else if constexpr (count == 20) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  } else if constexpr (count == 21) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u);
  } else if constexpr (count == 22) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v);
  } else if constexpr (count == 23) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
  } else if constexpr (count == 24) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x);
  } else if constexpr (count == 25) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y);
  } else if constexpr (count == 26) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z);
  } else if constexpr (count == 27) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A);
  } else if constexpr (count == 28) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B);
  } else if constexpr (count == 29) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C);
  } else if constexpr (count == 30) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D);
  } else if constexpr (count == 31) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E);
  } else if constexpr (count == 32) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F);
  } else if constexpr (count == 33) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G);
  } else if constexpr (count == 34) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H);
  } else if constexpr (count == 35) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I);
  } else if constexpr (count == 36) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J);
  } else if constexpr (count == 37) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K);
  } else if constexpr (count == 38) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L);
  } else if constexpr (count == 39) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M);
  } else if constexpr (count == 40) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N);
  } else if constexpr (count == 41) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O);
  } else if constexpr (count == 42) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P);
  } else if constexpr (count == 43) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q);
  } else if constexpr (count == 44) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R);
  } else if constexpr (count == 45) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S);
  } else if constexpr (count == 46) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U);
  } else if constexpr (count == 47) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V);
  } else if constexpr (count == 48) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W);
  } else if constexpr (count == 49) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X);
  } else if constexpr (count == 50) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y);
  } else if constexpr (count == 51) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z);
  } else if constexpr (count == 52) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa);
  } else if constexpr (count == 53) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab);
  } else if constexpr (count == 54) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac);
  } else if constexpr (count == 55) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad);
  } else if constexpr (count == 56) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae);
  } else if constexpr (count == 57) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af);
  } else if constexpr (count == 58) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag);
  } else if constexpr (count == 59) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah);
  } else if constexpr (count == 60) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai);
  } else if constexpr (count == 61) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj);
  } else if constexpr (count == 62) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak);
  } else if constexpr (count == 63) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al);
  } else if constexpr (count == 64) {
    HAWSER_TIE(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z, A, B, C, D, E, F, G, H, I,
               J, K, L, M, N, O, P, Q, R, S, U, V, W, X, Y, Z, aa, ab, ac, ad, ae, af, ag, ah, ai, aj, ak, al, am);
  }
}

#undef HAWSER_TIE

}  // namespace hawser::codec
