!> Waves that travel through a periodic domain at speed 1, u_t + u_x = 0, on a fine grid and on a coarse one.
!>
!> Each column of an array is a wave, and each process has a part of all waves.
module advection
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use halo, only: exchange, rank, ranks
  implicit none

  integer, parameter :: coarse_cells = 64, ratio = 8   ! a coarse cell is 8 fine ones
  integer, parameter :: halo_width = 3                 ! of both grids
  real(real64), parameter :: courant = 0.5_real64      ! cells that a wave travels in a step, on either grid
  integer, parameter :: period = 128                   ! coarse steps in which a wave travels through the domain
contains
  !> Makes a coarse time step of the fine grid. `cells` becomes the coarse cells before it, and `correction` how much the flux out
  !> of each differs from the cell's value, which would be the flux of the upwind scheme. New waves begin after each period.
  subroutine observe(step, fine, seed, cells, correction)
    integer, intent(in) :: step
    real(real64), intent(inout) :: fine(:, :), cells(:, :)
    integer(int64), intent(inout) :: seed
    real(real64), intent(out) :: correction(:, :)
    if (modulo(step, period) == 0) call draw(fine, seed)
    call average(fine, cells)
    call advance(fine, correction)
    correction = correction - cells(1 + halo_width:size(cells, 1) - halo_width, :)
  end subroutine

  !> New waves on the fine grid: a bump and a box each, whose positions, widths and heights are random.
  subroutine draw(u, seed)
    real(real64), intent(inout) :: u(1 - halo_width:, :)
    integer(int64), intent(inout) :: seed
    real(real64) :: r(6), x, dx
    integer :: i, wave, n
    n = size(u, 1) - 2 * halo_width
    dx = 1._real64 / (n * ranks)
    do wave = 1, size(u, 2)
      do i = 1, 6
        seed = modulo(16807 * seed, 2147483647_int64)  ! Park and Miller's generator
        r(i) = real(seed, real64) / 2147483647
      end do
      do i = 1, n
        x = (rank * n + i - 0.5_real64) * dx
        u(i, wave) = (0.5 + r(1)) * exp(-(distance(x, r(2)) / (0.03 + 0.05 * r(3)))**2)
        if (distance(x, r(4)) < 0.05 + 0.1 * r(5)) u(i, wave) = u(i, wave) + r(6)
      end do
    end do
  end subroutine

  pure real(real64) function distance(x, y)
    real(real64), intent(in) :: x, y
    distance = abs(modulo(x - y + 0.5_real64, 1._real64) - 0.5_real64)
  end function

  !> The means over the coarse cells, with their halo.
  subroutine average(fine, coarse)
    real(real64), intent(in) :: fine(1 - halo_width:, :)
    real(real64), intent(inout) :: coarse(1 - halo_width:, :)
    integer :: i
    do i = 1, size(coarse, 1) - 2 * halo_width
      coarse(i, :) = sum(fine(ratio * (i - 1) + 1:ratio * i, :), dim=1) / ratio
    end do
    call exchange(coarse, halo_width)
  end subroutine

  !> A coarse time step of the fine scheme, which is of second order and limited by van Leer's limiter. `flux` becomes the
  !> mean flux out of each coarse cell to the right.
  subroutine advance(u, flux)
    real(real64), intent(inout) :: u(1 - halo_width:, :)
    real(real64), intent(out) :: flux(:, :)
    real(real64) :: through(0:size(u, 1) - 2 * halo_width), behind, ahead
    integer :: i, n, substep, wave
    n = size(u, 1) - 2 * halo_width
    flux = 0
    do substep = 1, ratio
      call exchange(u, halo_width)
      do wave = 1, size(u, 2)
        do i = 0, n
          behind = u(i, wave) - u(i - 1, wave)
          ahead = u(i + 1, wave) - u(i, wave)
          through(i) = u(i, wave)
          if (behind * ahead > 0) through(i) = through(i) + (1 - courant) * behind * ahead / (behind + ahead)
        end do
        u(1:n, wave) = u(1:n, wave) - courant * (through(1:n) - through(0:n - 1))
        flux(:, wave) = flux(:, wave) + through(ratio:n:ratio) / ratio
      end do
    end do
  end subroutine

  !> A step of the coarse cells by the upwind scheme, or with corrected fluxes.
  subroutine advance_coarse(u, correction)
    real(real64), intent(inout) :: u(1 - halo_width:, :)
    real(real64), intent(in), optional :: correction(:, :)
    real(real64) :: flux(0:size(u, 1) - 2 * halo_width + 1, size(u, 2))
    integer :: n
    n = size(u, 1) - 2 * halo_width
    flux(1:n, :) = u(1:n, :)
    if (present(correction)) flux(1:n, :) = flux(1:n, :) + correction
    call exchange(flux, 1)
    u(1:n, :) = u(1:n, :) - courant * (flux(1:n, :) - flux(0:n - 1, :))
    call exchange(u, halo_width)
  end subroutine
end module
